"""Find code that can change attributes of other objects than its own."""

from __future__ import annotations

import ast

# Attributes whose replacement changes any module, whatever attributes the text of the module
# mentions.
_ALWAYS = frozenset(
    {"forward", "__call__", "__class__", "__dict__", "_modules", "_parameters", "_buffers"}
)
_SETTERS = frozenset({"setattr", "delattr", "__setattr__", "__delattr__"})
_REGISTERING = frozenset(
    {"add_module", "register_module", "set_submodule", "register_parameter", "register_buffer"}
)
_CHANGING = frozenset(
    {"append", "insert", "extend", "pop", "clear", "update", "__setitem__", "__delitem__"}
)
_WRAPPING = frozenset(
    {"weight_norm", "spectral_norm", "register_parametrization", "remove_weight_norm"}
)


def may_change_attribute(node: ast.AST, attributes: frozenset[str]) -> bool:
    """Return whether code can change one of the attributes, or one that decides what any module
    does, on an object other than its own `self`."""
    names = attributes | _ALWAYS
    return any(
        _stores_attribute(child, names) or _changes_by_call(child, names)
        for child in ast.walk(node)
    )


def _stores_attribute(node: ast.AST, attributes: frozenset[str]) -> bool:
    """Return whether a node assigns or deletes one of the attributes, or an element of it, on an
    object other than `self`.
    """
    if isinstance(node, ast.Attribute):
        is_dictionary = node.attr in ("__dict__", "_modules", "_parameters", "_buffers")
        return (is_dictionary or not isinstance(node.ctx, ast.Load)) and _is_foreign_attribute(
            node, attributes
        )
    return (
        isinstance(node, ast.Subscript)
        and not isinstance(node.ctx, ast.Load)
        and _is_foreign_attribute(node.value, attributes)
    )


def _changes_by_call(node: ast.AST, attributes: frozenset[str]) -> bool:
    """Return whether a node is a call that can change one of the attributes of an object other than
    `self`."""
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    name = (
        function.id
        if isinstance(function, ast.Name)
        else function.attr
        if isinstance(function, ast.Attribute)
        else ""
    )
    if name in _SETTERS:
        return _sets_by_name(node, attributes)
    if name in _WRAPPING or name == "vars":
        return True
    if not isinstance(function, ast.Attribute):
        return False
    registers_hook = name.startswith("register_") and name.endswith("hook")
    if name in _REGISTERING or registers_hook:
        return not _is_self(function.value)
    return name in _CHANGING and _is_foreign_attribute(function.value, attributes)


def _sets_by_name(call: ast.Call, attributes: frozenset[str]) -> bool:
    """Return whether `setattr(object, name, ...)` can set one of the attributes of an object other
    than `self`."""
    if len(call.args) < 2 or _is_self(call.args[0]):
        return False
    name = call.args[1]
    return not isinstance(name, ast.Constant) or name.value in attributes


def _is_foreign_attribute(node: ast.AST, attributes: frozenset[str]) -> bool:
    """Return whether a node is one of the attributes of an object other than `self`."""
    return isinstance(node, ast.Attribute) and node.attr in attributes and not _is_self(node.value)


def _is_self(node: ast.AST) -> bool:
    """Return whether a node is the name `self`."""
    return isinstance(node, ast.Name) and node.id == "self"
