"""Decide by its syntax whether code can change attributes of objects other than its own `self`."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection

from regraft.verification.names_and_scopes import name_of

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
# Layers of PyTorch that hold no other modules.
_LAYERS = frozenset({"Conv1d", "Conv2d", "Embedding", "LayerNorm", "Linear"})
_WRAPPING = frozenset(
    {"weight_norm", "spectral_norm", "register_parametrization", "remove_weight_norm"}
)


def may_change_attribute(node: ast.AST, attributes: frozenset[str]) -> bool:
    """Return whether code can change one of the attributes, or one that decides what any module
    does, on an object other than its own `self`.

    A weight of a layer of PyTorch that a class itself stores is no such attribute: two layers share
    it by `self.table.weight = self.head.weight`.
    """
    names = attributes | _ALWAYS
    shared_weights = _shared_weights(node)
    return any(
        (child not in shared_weights and _stores_attribute(child, names))
        or _changes_by_call(child, names)
        for child in ast.walk(node)
    )


def only_sets_flags(node: ast.AST, cls: str, flags: Collection[str]) -> bool:
    """Return whether a function contains no call, and every attribute that it assigns or deletes is
    `cls.NAME` with a NAME in `flags`; also True where it assigns no attribute."""
    stores = tuple(_attribute_stores(node))
    calls = (child for child in ast.walk(node) if isinstance(child, ast.Call))
    return not any(calls) and all(
        isinstance(store.value, ast.Name) and store.value.id == cls and store.attr in flags
        for store in stores
    )


def boolean_attributes(cls: ast.ClassDef) -> frozenset[str]:
    """Return the names to which a statement directly in the body of a class assigns True or
    False."""
    return frozenset(
        target.id
        for statement in cls.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        if isinstance(statement.value, ast.Constant) and type(statement.value.value) is bool
        for target in (
            statement.targets if isinstance(statement, ast.Assign) else (statement.target,)
        )
        if isinstance(target, ast.Name)
    )


def _shared_weights(node: ast.AST) -> frozenset[ast.AST]:
    """Return the targets `self.name.weight` of assignments in a class that binds `self.name` to new
    layers of PyTorch alone and inherits from no class that may bind it; none for other code."""
    if not isinstance(node, ast.ClassDef) or any(
        ast.unparse(base) not in ("nn.Module", "torch.nn.Module") for base in node.bases
    ):
        return frozenset()
    layers = _stored_layers(node)
    return frozenset(
        store
        for store in _attribute_stores(node)
        if store.attr == "weight"
        and isinstance(store.value, ast.Attribute)
        and _is_self(store.value.value)
        and store.value.attr in layers
    )


def _stored_layers(node: ast.ClassDef) -> set[str]:
    """Return the names of the attributes of `self` to which a class assigns new layers of PyTorch
    and nothing else."""
    assignments = [child for child in ast.walk(node) if isinstance(child, ast.Assign)]
    layers = Counter(
        target.attr
        for assignment in assignments
        if _is_new_layer(assignment.value)
        for target in assignment.targets
        if isinstance(target, ast.Attribute) and _is_self(target.value)
    )
    bindings = Counter(store.attr for store in _attribute_stores(node) if _is_self(store.value))
    return {name for name, count in layers.items() if count == bindings[name]}


def _attribute_stores(node: ast.AST) -> list[ast.Attribute]:
    """Return the syntax nodes of the attributes (`x.name`) that code assigns or deletes."""
    return [
        child
        for child in ast.walk(node)
        if isinstance(child, ast.Attribute) and not isinstance(child.ctx, ast.Load)
    ]


def _is_new_layer(value: ast.expr) -> bool:
    """Return whether an expression makes a layer of PyTorch that holds no other modules."""
    if not isinstance(value, ast.Call):
        return False
    module, _, name = ast.unparse(value.func).rpartition(".")
    return module in ("nn", "torch.nn") and name in _LAYERS


def _stores_attribute(node: ast.AST, attributes: frozenset[str]) -> bool:
    """Return whether a node assigns or deletes one of the attributes, or an element of it, on an
    object other than `self`; reading such an object's `__dict__`, `_modules`, `_parameters` or
    `_buffers` counts, too, if `attributes` has the name."""
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
    """Return whether a node is a call that can change one of the attributes, or a submodule,
    parameter or hook, of an object other than `self`. Such calls set or delete an attribute by its
    name (`setattr`), change a list or dictionary that is one of the attributes (`x.layers.append`),
    register a module, parameter, buffer or hook, or wrap a parameter (`weight_norm`); any call of
    `vars` counts."""
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    name = name_of(function)
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
    than `self`; a name that is no constant may be any."""
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
