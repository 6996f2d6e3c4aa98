"""Functions that forward makes itself: lambdas and inner functions, followed where they are called."""

from __future__ import annotations

import ast
import copy
from typing import Any

from regraft.splitting.interpreter import NotRun

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def as_definition(node: ast.Lambda) -> ast.FunctionDef:
    body = ast.copy_location(ast.Return(node.body), node)
    made = ast.FunctionDef(name="local", args=node.args, body=[body], decorator_list=[])
    return ast.copy_location(made, node)


def stand_in(node: ast.Lambda | ast.FunctionDef, defaults: list[Any], words: list[Any], scope: dict[str, Any]) -> Any:
    """A function with the same name and signature, which cannot be run."""
    given = copy.deepcopy(node.args)
    for one in [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]:
        if one is not None:
            one.annotation = None
    given.defaults = [ast.Constant(None) for _ in given.defaults]
    given.kw_defaults = [None if one is None else ast.Constant(None) for one in given.kw_defaults]
    called = node.name if isinstance(node, ast.FunctionDef) else "local"
    body: list[ast.stmt] = [ast.Raise(ast.Call(ast.Name("NotRun", ast.Load()), [], []))]
    made = ast.FunctionDef(name=called, args=given, body=body, decorator_list=[], lineno=1, col_offset=0)
    names: dict[str, Any] = {"NotRun": NotRun, "__name__": scope.get("__name__", "")}
    exec(compile(ast.fix_missing_locations(ast.Module([made], [])), "<local>", "exec"), names)
    function = names[called]
    function.__defaults__ = tuple(defaults) or None
    keys = [one.arg for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is not None]
    function.__kwdefaults__ = dict(zip(keys, words, strict=True)) or None
    if isinstance(node, ast.Lambda):
        function.__name__ = function.__qualname__ = "<lambda>"
    return function


def own_names(definition: ast.FunctionDef) -> set[str]:
    """The names that belong to a function by itself: its parameters and what it assigns itself."""
    given = definition.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    found = {one.arg for one in arguments if one is not None}
    for node in inside(definition):
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            found.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
    return found


def inside(definition: ast.AST) -> list[ast.AST]:
    """The nodes of a function's body, without those of functions in it."""
    found: list[ast.AST] = []
    waiting = list(getattr(definition, "body", []))
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, DEFINITIONS):
            waiting.extend(ast.iter_child_nodes(node))
    return found
