"""A test whether a function changes what outlives its calls: globals, attributes of its arguments,
or mutable defaults."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from types import ModuleType
from typing import Any

from regraft.splitting.program.residual_expressions import MUTATORS
from regraft.splitting.specialising.local_functions import find_followed, own_names


def changes_outside(function: Any) -> bool:
    """Return whether a Python function's own statements change what outlives its call; its callees
    are left out. False for what is not written in Python or has no source."""
    function = find_followed(getattr(function, "__func__", function))
    return inspect.isfunction(function) and _statements_change_outside(function)


@functools.lru_cache(maxsize=1000)
def _statements_change_outside(function: Any) -> bool:
    """Return whether the text of a function, without its callees, changes what outlives its call:
    it has a `global` or `nonlocal` statement, or changes an attribute, or a container that a
    global, a mutable default or an attribute of an argument holds. Cached.

    An argument itself may change as a list or dictionary, and objects in local names may change.
    False for a function without source, and for a lambda or coroutine function.
    """
    try:
        definition = ast.parse(textwrap.dedent(inspect.getsource(function.__code__))).body[0]
    except (OSError, TypeError, SyntaxError):
        return False
    if not isinstance(definition, ast.FunctionDef):
        return False
    parameters = inspect.signature(function, follow_wrapped=False).parameters
    arguments = {
        key
        for key, parameter in parameters.items()
        if not isinstance(parameter.default, (list, dict, set))
    }
    local_names = own_names(definition) - set(parameters)
    return any(
        changes_scope(node, local_names)
        or changes_container(node, local_names, arguments, function.__globals__)
        for node in ast.walk(definition)
    )


def is_stored(node: ast.AST) -> bool:
    """Return whether an expression is assigned or deleted."""
    return isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del))


def changes_scope(node: ast.AST, local_names: set[str]) -> bool:
    """Return whether a node is a `global` or `nonlocal` statement, or assigns or deletes an
    attribute of an object that is in none of `local_names`."""
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return True
    return (
        isinstance(node, ast.Attribute) and is_stored(node) and root_name(node) not in local_names
    )


def changes_container(
    node: ast.AST, local_names: set[str], arguments: set[str], scope: dict[str, Any]
) -> bool:
    """Return whether a node changes a container which a global, a mutable default or an attribute
    of an argument holds; False for one that a local name or a module holds.

    local_names: the variables that the function assigns. arguments: the parameters without mutable
    defaults. scope: the function's globals.
    """
    container = find_changed_container(node)
    root = root_name(container) if container is not None else ""
    if not root or root in local_names or isinstance(scope.get(root), ModuleType):
        return False
    return root not in arguments or isinstance(container, ast.Attribute)


def find_changed_container(node: ast.AST) -> ast.expr | None:
    """Return the container of which a node stores an element, or calls a method that changes it;
    None for any other node."""
    if isinstance(node, ast.Subscript) and is_stored(node):
        return node.value
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in MUTATORS
    ):
        return node.func.value
    return None


def root_name(node: ast.AST) -> str:
    """Return the name at the root of a chain of attributes and elements; "" where the root is no
    name."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
