"""Inlining: lowering the body of a called function of the file or its package in the place of its
call.

Only plain functions are inlined: no generators, no nested functions, no `return` inside a loop. A
function is not inlined into itself, and a body takes up a bounded number of nodes in this way, so
lowering stays linear in the code.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

from regraft.source.syntax_iterators import defaults, walk
from regraft.structure import guards
from regraft.structure.function_surroundings import Function, Scope
from regraft.structure.lowering_state import Frame
from regraft.structure.values_and_nodes import Value

Arguments = tuple[Sequence[Value], Mapping[str, Value]]
Block = Callable[[Frame, Sequence[ast.stmt]], guards.Guard]

MAX_DEPTH = 3
MAX_NODES = 4000  # in one body; from there on calls stay opaque

_REFUSED = (
    ast.Yield,
    ast.YieldFrom,
    ast.Await,
    ast.Global,
    ast.Nonlocal,
    ast.Lambda,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.GeneratorExp,
    ast.Try,
    ast.With,
    ast.AsyncWith,
    ast.AsyncFor,
    ast.While,
    ast.Match,
    ast.Delete,
    ast.Assert,
    ast.Raise,
)


def inline(
    frame: Frame,
    expr: ast.AST,
    function: Function,
    name: str,
    arguments: Arguments,
    lower_block: Block,
    receiver: Value | None = None,
    closure: bool = False,
    scope: Scope | None = None,
) -> Value | None:
    """Return the value of a call of `function`; None when it cannot be inlined, and then nothing is
    lowered.

    receiver  the instance, for a method
    closure   the function is a local one that sees the names of the caller
    scope     the scope of a function of another file
    """
    if not frame.scope.inlines or len(frame.active) >= MAX_DEPTH or function in frame.active:
        return None
    if len(frame.nodes) > MAX_NODES or not _can_inline(frame, function):
        return None
    bound = _bind_arguments(frame, function, arguments, receiver)
    if bound is None:
        return None
    site = frame.site or expr
    outer = frame.enter(site, function, bound, closure)
    if scope is not None:
        frame.scope = scope
    if receiver is not None:
        frame.receiver = [*function.args.posonlyargs, *function.args.args][0].arg
    elif not closure or frame.receiver in bound:
        frame.receiver = None
    exit_guard = lower_block(frame, function.body)
    returns = frame.returns
    end_guard = guards.conjoin(outer.guard, guards.negate(exit_guard))
    if exit_guard != guards.TRUE and guards.satisfiable(end_guard):
        returns.append((end_guard, frame.constant(None)))
    frame.leave(outer)
    value = _merge_returns(frame, returns, expr)
    if frame.site is None:
        frame.compound[site] = value
        frame.inlined[site] = name
    return value


def _merge_returns(
    frame: Frame, returns: Sequence[tuple[guards.Guard, Value]], expr: ast.AST
) -> Value:
    """Return the value of a call whose function returns these values under these guards, a φ if
    they differ."""
    if not returns:
        return frame.value("unknown")  # it always raises
    if all(value is returns[0][1] for _, value in returns):
        return returns[0][1]
    value = frame.phi(tuple(returns))
    value.node = frame.node("py.result", {}, expr)
    value.node.output = value
    return value


def _can_inline(frame: Frame, function: Function) -> bool:
    """Return whether a function can be inlined, from the cache of the scope if possible."""
    can_inline = frame.scope.inlinable.get(function)
    if can_inline is None:
        can_inline = frame.scope.inlinable[function] = _is_plain(function)
    return can_inline


def _is_plain(function: Function) -> bool:
    """Return whether a function has a form that can be inlined; no decorator but `staticmethod` is
    allowed."""
    has_plain_decorators = all(
        isinstance(decorator, ast.Name) and decorator.id == "staticmethod"
        for decorator in function.decorator_list
    )
    is_starred = function.args.vararg or function.args.kwarg
    if not has_plain_decorators or isinstance(function, ast.AsyncFunctionDef) or is_starred:
        return False
    for statement in function.body:
        for node in walk(statement):
            if isinstance(node, _REFUSED):
                return False
            if isinstance(node, ast.For) and any(
                isinstance(descendant, ast.Return) for descendant in walk(node)
            ):
                return False
    return True


def _bind_arguments(
    frame: Frame, function: Function, arguments: Arguments, receiver: Value | None
) -> dict[str, Value] | None:
    """Return the value of each parameter in a call; None when the arguments do not fit the
    parameters."""
    positional, keywords = arguments
    parameters = [*function.args.posonlyargs, *function.args.args]
    values = [*([receiver] if receiver is not None else []), *positional]
    if len(values) > len(parameters):
        return None
    bound = {parameter.arg: value for parameter, value in zip(parameters, values, strict=False)}
    names = {parameter.arg for parameter in (*parameters, *function.args.kwonlyargs)}
    for name, value in keywords.items():
        if name in bound or name not in names:
            return None
        bound[name] = value
    default_by_name = {parameter.arg: default for parameter, default in defaults(function.args)}
    for name in names - bound.keys():
        if name not in default_by_name:
            return None
        default = default_by_name[name]
        if isinstance(default, ast.Constant):
            bound[name] = frame.constant(default.value)
        else:
            bound[name] = frame.value("unknown")
    return bound
