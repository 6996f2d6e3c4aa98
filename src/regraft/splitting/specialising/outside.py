"""Functions that change what outlives their calls: globals, attributes of their arguments, and
mutable defaults."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from types import ModuleType
from typing import Any

from regraft.splitting.program.codes import MUTATORS
from regraft.splitting.specialising.local import own_names


def changes_outside(function: Any) -> bool:
    """Return whether a Python function's own statements change what outlives its call; its callees
    are left out."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    return inspect.isfunction(function) and _statements_change_outside(function)


@functools.lru_cache(maxsize=1000)
def _statements_change_outside(function: Any) -> bool:
    """Return whether the function's own statements change what outlives its call; False where it
    has no source."""
    try:
        definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError):
        return False
    if not isinstance(definition, ast.FunctionDef):
        return False
    parameters = inspect.signature(function).parameters
    mutable_defaults = {
        key
        for key, parameter in parameters.items()
        if isinstance(parameter.default, (list, dict, set))
    }
    arguments = {key for key in parameters if key not in mutable_defaults}
    local_names = own_names(definition) - set(parameters)
    for node in ast.walk(definition):
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            return True
        is_stored = isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del))
        if isinstance(node, ast.Attribute) and is_stored and root_name(node) not in local_names:
            return True
        changed = None
        if isinstance(node, ast.Subscript) and is_stored:
            changed = node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in MUTATORS
        ):
            changed = node.func.value
        changed_root = root_name(changed) if changed is not None else ""
        if (
            not changed_root
            or changed_root in local_names
            or isinstance(function.__globals__.get(changed_root), ModuleType)
        ):
            continue
        if changed_root not in arguments or isinstance(changed, ast.Attribute):
            return True
    return False


def root_name(node: ast.AST) -> str:
    """Return the name at the root of a chain of attributes and elements; "" where the root is no
    name."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
