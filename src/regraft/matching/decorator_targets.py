"""The decorators that a rule puts on definitions, compiled for rewriting."""

from __future__ import annotations

from collections.abc import Sequence

from regraft.dsl.syntax import Apply, Const, Node, Position, Ref, Transformation, Var, Wildcard
from regraft.matching.pattern import Decorator, raise_problem


def compile_decorator(transformation: Transformation) -> Decorator | None:
    """Return the decorator of a target, or None for a kernel call; raise PatternProblem where it,
    its arguments or the definition's parameters have another form. The target is `@mark("name")($x,
    flag=1)`, and `@mark(_)` for the classes that call the marked definition."""
    decorator_node, *caller_nodes = (
        node for node in transformation.target if isinstance(node, Node)
    )
    if not decorator_node.layer:
        return None
    at = decorator_node.at
    path, call = _decorator_call(decorator_node.apply, at)
    arguments = tuple(argument for argument in call.args if isinstance(argument, Const))
    parameters = _decorator_parameters(decorator_node.apply)
    if len(arguments) < len(call.args) or parameters is None:
        raise_problem(
            "a decorator takes constants; the definition's parameters are variables, or have"
            " constants",
            at,
        )
    return Decorator(path, arguments, parameters, caller_decorator(caller_nodes, at))


def _decorator_call(apply: Apply, at: Position | None) -> tuple[str, Apply]:
    """Return the qualified name of a decorator `@name(...)($x)`, and the call `name(...)`; raise
    PatternProblem for another form."""
    call = apply.callee
    if isinstance(call, Apply) and isinstance(call.callee, Ref) and not call.keywords:
        return call.callee.path, call
    raise_problem(
        "a decorator is called, and then with the definition's parameters: @name(...)($x)", at
    )


def _decorator_parameters(apply: Apply) -> tuple[tuple[str, Const | None], ...] | None:
    """Return the parameters of the marked definition as (name, default), the default None where
    there is none; return None where a parameter is no variable or a default no constant."""
    parameters: list[tuple[str, Const | None]] = []
    for variable in apply.args:
        if not isinstance(variable, Var):
            return None
        parameters.append((variable.name, None))
    for name, default in apply.keywords:
        if not isinstance(default, Const):
            return None
        parameters.append((name, default))
    return tuple(parameters)


def caller_decorator(nodes: Sequence[Node], at: Position | None) -> str:
    """Return the qualified name of the decorator of the classes that call the marked definition; ""
    where there is none. Raise PatternProblem for another form than `@name(_)`."""
    paths = []
    for node in nodes:
        if (
            not isinstance(node.apply.callee, Ref)
            or not node.layer
            or node.apply.args != (Wildcard(),)
        ):
            raise_problem(
                "the decorator of classes that call the definition is given that: @name(_)", at
            )
        paths.append(node.apply.callee.path)
    return "".join(paths)
