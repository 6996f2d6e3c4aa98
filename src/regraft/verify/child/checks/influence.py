"""Which parameters of a function decide what some of its lines compute."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

Function = ast.FunctionDef | ast.AsyncFunctionDef
Lines = Sequence[tuple[int, int]]


def deciding_parameters(function: Function, lines: Lines) -> tuple[str, ...]:
    """Return the parameters that default to None and decide what the lines compute, directly or through variables.

    A variable depends on a parameter where it is assigned from it, or in a branch or loop that it decides.
    """
    optional = [name for name, default in _defaults(function) if _is_none(default)]
    return tuple(name for name in optional if _reaches(name, function, lines))


def _defaults(function: Function) -> Iterator[tuple[str, ast.expr | None]]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    first = len(positional) - len(arguments.defaults)
    for argument, default in zip(positional[first:], arguments.defaults, strict=True):
        yield argument.arg, default
    for keyword, other in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield keyword.arg, other


def _is_none(default: ast.expr | None) -> bool:
    return isinstance(default, ast.Constant) and default.value is None


def _reaches(name: str, function: Function, lines: Lines) -> bool:
    dependent = _dependent(name, function)
    reads = (node for node in ast.walk(function) if isinstance(node, ast.Name) and not _stored(node))
    return any(start <= node.lineno <= end for node in reads if node.id in dependent for start, end in lines)


def _dependent(name: str, function: Function) -> frozenset[str]:
    """Return the variables that depend on a parameter, itself included."""
    dependent = {name}
    while True:
        before = len(dependent)
        for statement in function.body:
            _spread(statement, dependent, decided=False)
        if len(dependent) == before:
            return frozenset(dependent)


def _spread(node: ast.stmt, dependent: set[str], *, decided: bool) -> None:
    """Add the variables that a statement assigns where it reads a dependent one, or is decided by one."""
    blocks = [block for field in ("body", "orelse", "finalbody") for block in getattr(node, field, [])]
    blocks += [statement for handler in getattr(node, "handlers", []) for statement in handler.body]
    inner = {id(part) for statement in blocks for part in ast.walk(statement)}
    own = [part for part in ast.walk(node) if id(part) not in inner]
    reads = any(isinstance(part, ast.Name) and part.id in dependent and not _stored(part) for part in own)
    if decided or reads:
        dependent.update(part.id for part in own if isinstance(part, ast.Name) and _stored(part))
        dependent.update(filter(None, map(_changed_in_place, own)))
    branch = isinstance(node, ast.If | ast.While | ast.For | ast.Match)
    for statement in blocks:
        _spread(statement, dependent, decided=decided or (branch and reads))


def _changed_in_place(node: ast.AST) -> str:
    """Return the variable whose value an expression changes in place, "" for none."""
    match node:
        case ast.Subscript(ast.Name(name), _, ast.Store()):
            return name
        case ast.Call(ast.Attribute(ast.Name(name), method)) if method.endswith("_") or method in ("append", "extend"):
            return name
    return ""


def _stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)
