"""The test whether a definition as a whole computes what a pattern does, so that a decorator may
mark it.

A decorated definition is replaced as a whole by a layer of another library: with all its
parameters, all its results, and nothing besides.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from regraft.dsl.syntax import Const
from regraft.matching.constants import number_of
from regraft.matching.pattern import Decorator
from regraft.matching.result import Match
from regraft.structure import guards
from regraft.structure.function_surroundings import Function
from regraft.structure.module_structures import Module
from regraft.structure.values_and_nodes import Node, Value

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def definition(match: Match) -> Definition:
    """Return the definition that a decorator of this match stands above: the class of a method, or
    the function."""
    return match.structure.cls or match.body.node


def marking_objection(match: Match, module: Module) -> tuple[str, ast.AST] | None:
    """Return why the definition around a match of a decorator's pattern is not to be marked, and
    the node to blame; None where it may be marked, and for a pattern without a decorator."""
    decorator = match.pattern.decorator
    if decorator is None:
        return None
    function, owner = match.body.node, definition(match)
    cls = match.structure.cls
    for base in module.bases(cls) if cls is not None else (owner,):
        if base.decorator_list:
            return f"{base.name} has a decorator already", base
    if function.decorator_list:
        return f"{function.name} has a decorator already", function
    if cls is None and function not in module.source.tree.body:
        return "the function is not at the top level of the file", function
    if cls is not None and module.methods(cls).get("forward") is not function:
        return "only the forward of a class is replaced", function
    for sub in module.subclasses.get(cls.name, ()) if cls is not None else ():
        if "forward" in module.methods(sub):
            reason = "has a forward of its own, and would inherit the decorator"
            return f"subclass {sub.name} {reason}", sub
    reason = _signature_misfit(match, decorator, function, method=cls is not None)
    return (reason, function) if reason else _work_besides_match(match, function)


def _signature_misfit(
    match: Match, decorator: Decorator, function: Function, *, method: bool
) -> str:
    """Return why the parameters of a function are not those of the decorated layer by name, order
    and default, or are bound to other values in the match; "" where all fit.

    method: whether the first parameter is the instance.
    """
    arguments = function.args
    names = [parameter.arg for parameter in arguments.args][int(method) :]
    defaults: list[ast.expr | None] = [None] * (len(names) - len(arguments.defaults))
    parameters = list(zip(names, (*defaults, *arguments.defaults), strict=False))
    unsupported = (*arguments.posonlyargs, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
    expected = decorator.parameters
    is_same = len(parameters) == len(expected) and all(
        name == actual[0] and _is_default(default, actual[1])
        for actual, (name, default) in zip(parameters, expected, strict=True)
    )
    if any(unsupported) or not is_same or isinstance(function, ast.AsyncFunctionDef):
        parameter_texts = (
            name if default is None else f"{name}={default.value!r}" for name, default in expected
        )
        return f"the parameters of {function.name} are not ({', '.join(parameter_texts)})"
    for name, _ in expected:
        value = match.bindings[name]
        if value.origin != "param" or value.name != name:
            return f"${name} is not the parameter {name}"
    return ""


def _is_default(expected: Const | None, actual: ast.expr | None) -> bool:
    """Return whether the default of a parameter is the expected constant; None stands for no
    default."""
    if actual is None:
        return expected is None
    return isinstance(actual, ast.Constant) and Const(actual.value) == expected  # type: ignore[arg-type]


def _work_besides_match(match: Match, function: Function) -> tuple[str, ast.AST] | None:
    """Return what a function does besides the match, or returns besides its outputs, in words, with
    the syntax node; None where it does nothing else."""
    for statement in function.body:
        is_plain = isinstance(statement, ast.Assign | ast.AnnAssign | ast.Return)
        if not is_plain and not (
            isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        ):
            return "the function does more than to assign and to return", statement
    if match.body.opaque or match.body.stores or match.tests or match.guard != guards.TRUE:
        return "the function does not always do the same, or does more", function
    outputs = [match.bindings[name] for name in match.pattern.outputs]
    matched = {*match.nodes, *_glue_nodes(match, outputs)}
    for node in match.body.nodes:
        if node not in matched:
            return "the function computes something beside what the layer computes", node.expr
    return None


def _glue_nodes(match: Match, outputs: list[Value]) -> Iterator[Node]:
    """Yield the nodes that need no match: the return of the outputs, attribute reads, tuples,
    numbers."""
    for node in match.body.nodes:
        if (node.op in ("py.attr", "py.tuple") and not node.effect) or number_of(
            node.output
        ) is not None:
            yield node
        elif node.op == "py.return":
            (value,) = node.args.values()
            if [value] == outputs or (value.items is not None and list(value.items) == outputs):
                yield node
