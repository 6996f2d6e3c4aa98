"""Evaluation of expressions: constants are computed, tensors become statements of regions, the host
keeps the rest."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from regraft.splitting.program.literals import literal
from regraft.splitting.program.residual import HostStep
from regraft.splitting.program.residual_expressions import name
from regraft.splitting.program.statements import Evaluate
from regraft.splitting.program.values import (
    HostValue,
    LostValue,
    StaticValue,
    TensorValue,
    Value,
)
from regraft.splitting.specialising.attributes import evaluate_attribute
from regraft.splitting.specialising.calls import evaluate_call, evaluate_lambda
from regraft.splitting.specialising.code_running import read_number, run_code
from regraft.splitting.specialising.comprehensions import (
    evaluate_dictionary_comprehension,
    evaluate_generator,
    evaluate_list_comprehension,
)
from regraft.splitting.specialising.containers import (
    evaluate_list,
    evaluate_slice,
    evaluate_tuple,
    make_dictionary,
)
from regraft.splitting.specialising.followed_code import Frame
from regraft.splitting.specialising.host_sets import (
    evaluate_set_comprehension,
    evaluate_set_display,
)
from regraft.splitting.specialising.indexing import evaluate_subscript
from regraft.splitting.specialising.object_choices import ObjectChoice
from regraft.splitting.specialising.operators import evaluate_operator
from regraft.splitting.specialising.short_circuit_expressions import (
    evaluate_bool_op,
    evaluate_comparison,
    evaluate_conditional,
    evaluate_named_expression,
)
from regraft.splitting.specialising.state import Specialisation


def evaluate_constant(state: Specialisation, node: ast.Constant) -> Value:
    """Return the value of a literal, which is known now."""
    return StaticValue(node.value, node)


def evaluate_name(state: Specialisation, node: ast.Name) -> Value:
    """Return the value of a variable of the functions around, a global or a built-in function;
    raise Unsplittable for a name that none of them has, or whose type the paths here disagree on.

    A constant that no input decides becomes static. A name that some paths do not assign is
    asserted to be assigned.
    """
    frame: Frame | None = state.frame
    while frame is not None:
        key = frame.prefix + node.id
        value = state.names.get(key)
        if value is not None and (frame is state.frame or node.id in frame.own_names):
            if isinstance(value, LostValue) and value.objects:
                raise ObjectChoice(key)
            state.require_single_type(node, node.id, value)
            if value.partial and key not in state.guarded_names:
                assert_assigned(state, node, key)
                value = state.names[key]
            if (
                isinstance(value, HostValue)
                and value.constant
                and literal(value.example) is not None
            ):
                # what an iteration assigns before it reads it
                return state.static(value.example)
            return value
        if node.id in frame.own_names:  # a global of this name is another variable
            raise state.refuse(
                node, f"{node.id} is not defined on this path, or its function has ended"
            )
        frame = frame.outer
    if node.id in state.frame.scope:
        return state.static(
            state.frame.scope[node.id], state.alias_global(node.id, state.frame.scope[node.id])
        )
    if hasattr(builtins, node.id):
        return StaticValue(getattr(builtins, node.id), name(node.id))
    raise state.refuse(node, f"{node.id} is not defined on this path")


def assert_assigned(state: Specialisation, node: ast.Name, key: str) -> None:
    """Append host steps that raise where a variable that only some of the paths here assign has no
    value; from then on it counts as assigned, and so do its elements.

    Raises Unsplittable where a single ONNX file is made, and in a function that a loop calls: a
    value left by an iteration before would pass for one. key: the variable's name in `state.names`.
    """
    subject = f"{node.id}, which only some of the paths here assign,"
    if not state.allows_partial:
        raise state.refuse(node, f"{subject} cannot be part of a single ONNX file")
    if state.frame.may_repeat and state.frame.prefix:
        raise state.refuse(node, f"{subject} is not supported in a function that a loop calls")
    parts = ast.walk(state.names[key].code)
    for variable in (key, *(part.id for part in parts if isinstance(part, ast.Name))):
        value = state.names.get(variable)
        if value is not None and value.partial:
            state.names[variable] = replace(value, partial=False)
            if not value.fields:
                state.steps.append(HostStep(Evaluate(name(variable))))


def evaluate_format_string(state: Specialisation, node: ast.JoinedStr) -> Value:
    """Return the value of an f-string, which the host makes, reading tensors of one value; it is
    static if all its parts are."""
    parts, is_static = _format_parts(state, node)
    value = run_code(state, node, ast.JoinedStr(parts))
    return state.static(value.example) if is_static else value


def _format_parts(state: Specialisation, node: ast.JoinedStr) -> tuple[list[ast.expr], bool]:
    """Return the parts of an f-string, or of a format specification, as the host's expressions, and
    whether the values in it are all static."""
    parts: list[ast.expr] = []
    is_static = True
    for part in node.values:
        if not isinstance(part, ast.FormattedValue):
            parts.append(part)
            continue
        value = state.evaluate(part.value)
        if isinstance(value, TensorValue):
            value = read_number(state, value)
        is_static = is_static and isinstance(value, StaticValue)
        specification = part.format_spec
        if isinstance(specification, ast.JoinedStr):
            inner_parts, is_inner_static = _format_parts(state, specification)
            specification, is_static = ast.JoinedStr(inner_parts), is_static and is_inner_static
        parts.append(ast.FormattedValue(value.code, part.conversion, specification))
    return parts, is_static


Handler = Callable[[Specialisation, Any], Value]
EXPRESSIONS: dict[type[ast.expr], Handler] = {
    ast.Attribute: evaluate_attribute,
    ast.BinOp: evaluate_operator,
    ast.BoolOp: evaluate_bool_op,
    ast.Call: evaluate_call,
    ast.Compare: evaluate_comparison,
    ast.Constant: evaluate_constant,
    ast.Dict: make_dictionary,
    ast.DictComp: evaluate_dictionary_comprehension,
    ast.GeneratorExp: evaluate_generator,
    ast.IfExp: evaluate_conditional,
    ast.JoinedStr: evaluate_format_string,
    ast.Lambda: evaluate_lambda,
    ast.List: evaluate_list,
    ast.ListComp: evaluate_list_comprehension,
    ast.Name: evaluate_name,
    ast.NamedExpr: evaluate_named_expression,
    ast.Set: evaluate_set_display,
    ast.SetComp: evaluate_set_comprehension,
    ast.Slice: evaluate_slice,
    ast.Subscript: evaluate_subscript,
    ast.Tuple: evaluate_tuple,
    ast.UnaryOp: evaluate_operator,
}


def evaluate_by_type(state: Specialisation, node: ast.expr) -> Value:
    """Return the value of an expression, by the handler for the type of its node; raise
    Unsplittable for types without one."""
    handler = EXPRESSIONS.get(type(node))
    if handler is None:
        raise state.refuse(node, f"{type(node).__name__} is not supported")
    return handler(state, node)
