"""Whether a definition as a whole computes what a pattern does, so that a decorator may say so.

A decorated definition is replaced as a whole by a layer of another library: with all its parameters, all its results,
and nothing besides.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from regraft.dsl.syntax import Const
from regraft.matching.pattern import Decorator
from regraft.matching.predicates import number_of
from regraft.matching.result import Match
from regraft.structure import guards
from regraft.structure.frame import Function
from regraft.structure.model import Node, Value
from regraft.structure.module import Module

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def definition(match: Match) -> Definition:
    """What a decorator of this match stands above: the class of a method, or the function."""
    return match.structure.cls or match.body.node


def misfit(match: Match, module: Module) -> tuple[str, ast.AST] | None:
    """Why the definition around a match of a decorator's pattern is not to be marked, and where; None when it is."""
    decorator = match.pattern.decorator
    if decorator is None:
        return None
    function, owner = match.body.node, definition(match)
    cls = match.structure.cls
    for one in module.bases(cls) if cls is not None else (owner,):
        if one.decorator_list:
            return f"{one.name} has a decorator already", one
    if function.decorator_list:
        return f"{function.name} has a decorator already", function
    if cls is None and function not in module.source.tree.body:
        return "the function is not at the top level of the file", function
    if cls is not None and module.methods(cls).get("forward") is not function:
        return "only the forward of a class is replaced", function
    for sub in module.subclasses.get(cls.name, ()) if cls is not None else ():
        if "forward" in module.methods(sub):
            return f"subclass {sub.name} has a forward of its own, and would inherit the decorator", sub
    reason = _signature(match, decorator, function, method=cls is not None)
    return (reason, function) if reason else _besides(match, function)


def _signature(match: Match, decorator: Decorator, function: Function, *, method: bool) -> str:
    """Why the parameters are not those of the layer, by name, order and default."""
    arguments = function.args
    names = [one.arg for one in arguments.args][int(method) :]
    defaults: list[ast.expr | None] = [None] * (len(names) - len(arguments.defaults))
    found = list(zip(names, (*defaults, *arguments.defaults), strict=False))
    others = (*arguments.posonlyargs, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
    wanted = decorator.parameters
    same = len(found) == len(wanted) and all(
        name == given[0] and _equal(default, given[1]) for given, (name, default) in zip(found, wanted, strict=True)
    )
    if any(others) or not same or isinstance(function, ast.AsyncFunctionDef):
        shown = (name if default is None else f"{name}={default.value!r}" for name, default in wanted)
        return f"the parameters of {function.name} are not ({', '.join(shown)})"
    for name, _ in wanted:
        value = match.bindings[name]
        if value.origin != "param" or value.name != name:
            return f"${name} is not the parameter {name}"
    return ""


def _equal(wanted: Const | None, given: ast.expr | None) -> bool:
    if given is None:
        return wanted is None
    return isinstance(given, ast.Constant) and Const(given.value) == wanted  # type: ignore[arg-type]


def _besides(match: Match, function: Function) -> tuple[str, ast.AST] | None:
    """What the function does beside the match, and returns beside its outputs."""
    for statement in function.body:
        plain = isinstance(statement, ast.Assign | ast.AnnAssign | ast.Return)
        if not plain and not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            return "the function does more than to assign and to return", statement
    if match.body.opaque or match.body.stores or match.tests or match.guard != guards.TRUE:
        return "the function does not always do the same, or does more", function
    outputs = [match.bindings[name] for name in match.pattern.outputs]
    matched = {*match.nodes, *_glue(match, outputs)}
    for node in match.body.nodes:
        if node not in matched:
            return "the function computes something beside what the layer computes", node.expr
    return None


def _glue(match: Match, outputs: list[Value]) -> Iterator[Node]:
    """The return of the outputs, and what has no effect: attributes that are read, tuples, constants."""
    for node in match.body.nodes:
        if (node.op in ("py.attr", "py.tuple") and not node.effect) or number_of(node.output) is not None:
            yield node
        elif node.op == "py.return":
            (value,) = node.args.values()
            if [value] == outputs or (value.items is not None and list(value.items) == outputs):
                yield node
