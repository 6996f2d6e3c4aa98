"""Functions that change what outlives their calls: globals, attributes of what they are given, defaults."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from types import ModuleType
from typing import Any

from regraft.splitting.codes import MUTATORS
from regraft.splitting.local import own_names


def changes_outside(function: Any) -> bool:
    """Whether the statements of a Python function say so; what it calls is not looked at."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    return inspect.isfunction(function) and _changes(function)


@functools.lru_cache(maxsize=1000)
def _changes(function: Any) -> bool:
    try:
        definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError):
        return False
    if not isinstance(definition, ast.FunctionDef):
        return False
    parameters = inspect.signature(function).parameters
    kept = {key for key, one in parameters.items() if isinstance(one.default, (list, dict, set))}
    given = {key for key in parameters if key not in kept}
    own = own_names(definition) - set(parameters)
    for node in ast.walk(definition):
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            return True
        stored = isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del))
        if isinstance(node, ast.Attribute) and stored and root(node) not in own:
            return True
        of = None
        if isinstance(node, ast.Subscript) and stored:
            of = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
            of = node.func.value
        first = root(of) if of is not None else ""
        if not first or first in own or isinstance(function.__globals__.get(first), ModuleType):
            continue
        if first not in given or isinstance(of, ast.Attribute):
            return True
    return False


def root(node: ast.AST) -> str:
    """The name that an attribute or an element is of."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
