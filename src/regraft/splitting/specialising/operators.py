"""Operators: arithmetic, comparisons and `not`, and the cases that need more than the operation."""

from __future__ import annotations

import ast
import copy
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from regraft.splitting.program.literals import literal
from regraft.splitting.program.possible_constants import (
    TRUTHS,
    operator_outcomes,
    possible_constants,
)
from regraft.splitting.program.residual_expressions import method_call
from regraft.splitting.program.value_kinds_and_parts import are_static, has_kind
from regraft.splitting.program.values import (
    EitherValue,
    HostValue,
    RecordValue,
    StaticValue,
    TensorValue,
    Value,
    convert_to_host,
)
from regraft.splitting.specialising.branches import evaluate_truth
from regraft.splitting.specialising.code_running import run_code, run_operation
from regraft.splitting.specialising.container_operators import (
    Operation,
    Operator,
    add_lists,
    add_tuples,
    combine_sets,
    find_in_container,
    find_key,
    negate,
    repeat_list,
)
from regraft.splitting.specialising.either_values import require_tensors, test_for_none
from regraft.splitting.specialising.objects_made_in_forward import is_stand_in
from regraft.splitting.specialising.record_fields import operate_on_records
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.values_stored_under_names import bind_number

# the operators that `combine_mask` replaces, with the functions that compute them
MASK_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Mult: operator.mul,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
}


def evaluate_operator(state: Specialisation, node: Operator) -> Value:
    """Return the value of an operator: by a special case of SPECIAL_CASES, as a constant where the
    operands' constants leave a single outcome, else by running it.

    The value is a tensor where an operand is, else the host's where the host computes an operand,
    else a constant. Raises Unsplittable for what cannot be followed.
    """
    node = without_new_list(node)
    operand_nodes = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    operands = [state.evaluate(operand_node) for operand_node in operand_nodes]
    if has_kind(operands, EitherValue):
        none_check = test_for_none(state, node, operands)
        if none_check is not None:
            return none_check
        operands = require_tensors(state, node, operands)
    if has_kind(operands, RecordValue):
        return operate_on_records(state, node, operands)
    if has_kind(operands, TensorValue):
        operands = bind_operands(state, node, operands)
    operation = Operation(node, operands, write_operation(node, operands))
    for evaluate_case in SPECIAL_CASES.get(operation.operator_type, ()):
        value = evaluate_case(state, operation)
        if value is not None:
            return value
    among = operator_outcomes(node, operand_nodes, operands)
    if among is None and gives_truth(node):
        among = TRUTHS
    if among is not None and len(among) == 1:
        return state.static(among[0])
    value = run_operation(state, node, operation.code, operands)
    return replace(value, among=among) if isinstance(value, HostValue) else value


def bind_operands(state: Specialisation, node: Operator, operands: list[Value]) -> list[Value]:
    """Return the operands of an operator on tensors as a region takes them: for `not` the truth of
    the operand, else each number of the host under a name."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [evaluate_truth(state, operands[0])]
    return [bind_number(state, operand) for operand in operands]


def write_operation(node: Operator, operands: list[Value]) -> ast.expr:
    """Return the operator with the residual expressions of its operands; the sum of two list
    displays is one display. `node` stays as it is."""
    codes = [operand.code for operand in operands]
    operation = copy.copy(node)
    if isinstance(operation, ast.BinOp):
        left, right = codes
        if (
            isinstance(operation.op, ast.Add)
            and isinstance(left, ast.List)
            and isinstance(right, ast.List)
        ):
            return ast.List([*left.elts, *right.elts], ast.Load())
        operation.left, operation.right = left, right
    elif isinstance(operation, ast.UnaryOp):
        operation.operand = codes[0]
    else:
        operation.left, operation.comparators = codes[0], codes[1:]
    return operation


def gives_truth(node: Operator) -> bool:
    """Return whether an operator on values of the host gives True or False."""
    return isinstance(node, ast.Compare) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    )


def without_new_list(node: Operator) -> Operator:
    """Return `x in (a, b)` for `x in [a, b]`, which nothing can tell apart; any other operator as
    it is."""
    is_membership = isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn))
    if not is_membership or not isinstance(node.comparators[0], ast.List):  # type: ignore[union-attr]
        return node
    elements = ast.Tuple(node.comparators[0].elts, ast.Load())  # type: ignore[union-attr]
    comparison = ast.Compare(node.left, node.ops, [ast.copy_location(elements, node)])  # type: ignore[union-attr]
    return ast.copy_location(comparison, node)


def compare_identity(state: Specialisation, operation: Operation) -> Value | None:
    """Return the value of `is` or `is not`: a constant where an operand is None or an object such
    as a class or module, the host's comparison for a number. Raises Unsplittable for two values of
    run time."""
    node, operands = operation.node, operation.operands
    if are_static(operands):
        are_identical = operands[0].example is operands[1].example
        return state.static(are_identical == (operation.operator_type is ast.Is))
    has_number = any(
        isinstance(operand, HostValue) and isinstance(operand.example, (int, float))
        for operand in operands
    )
    if has_number and not any(operand.example is None for operand in operands):
        return convert_to_host(run_code(state, node, operation.code))  # `flag is True`
    if not any(map(is_unique_object, operands)):
        raise state.refuse(
            node,
            "whether two values known only at run time are one object is not supported",
        )
    return state.static(run_code(state, node, operation.code).example)


def is_unique_object(value: Value) -> bool:
    """Return whether a value is known now, and is None or an object that has no literal, such as a
    module or a class; False for tensors."""
    if not isinstance(value, StaticValue) or isinstance(value.example, torch.Tensor):
        return False
    return value.example is None or literal(value.example) is None


def negate_stand_in(state: Specialisation, operation: Operation) -> Value | None:
    """Return the value of `not` of an object that forward makes; None for another operand."""
    example = operation.operands[0].example
    if not is_stand_in(state, example):
        return None
    return negate(state, evaluate_truth(state, operation.operands[0]))


def check_power(state: Specialisation, operation: Operation) -> Value | None:
    """Raise Unsplittable for a power of ints whose exponent, which the host computes, may be
    negative; return None for any other power, which is then evaluated as it stands."""
    exponent = operation.operands[1]
    is_integral = all(isinstance(operand.example, int) for operand in operation.operands)
    if (
        isinstance(exponent, HostValue)
        and is_integral
        and min(possible_constants(exponent) or (-1,)) < 0
    ):
        raise state.refuse(
            operation.node,
            "a power of whole numbers is none if the exponent is negative: use a float",
        )
    return None


def combine_mask(state: Specialisation, operation: Operation) -> Value | None:
    """Return a new mask for a mask combined with one constant truth value, such as `mask | False`,
    computed by its truth table; None for other operands, and where the result is no mask.

    The exporter to ONNX fails on the constant.
    """
    operands = operation.operands
    masks = [
        operand
        for operand in operands
        if isinstance(operand, TensorValue) and getattr(operand.example, "dtype", 0) == torch.bool
    ]
    if len(masks) != 1 or not any(
        isinstance(operand, StaticValue) and type(operand.example) is bool for operand in operands
    ):
        return None
    truths = torch.tensor([False, True])
    table = MASK_OPERATORS[operation.operator_type](
        *(truths if operand is masks[0] else operand.example for operand in operands)
    )
    if table.dtype != torch.bool:
        return None
    mask = state.bind_result(masks[0])
    inverted = ast.UnaryOp(ast.Invert(), mask)
    codes: dict[tuple[bool, ...], ast.expr] = {
        (False, True): method_call(mask, "clone"),
        (True, False): inverted,
        (True, True): ast.BinOp(mask, ast.BitOr(), inverted),
        (False, False): ast.BinOp(mask, ast.BitAnd(), inverted),
    }
    return run_code(state, operation.node, codes[tuple(table.tolist())])


# by the operator: what is tried in turn, before the operation is run as it stands
SPECIAL_CASES: dict[
    type[ast.AST], tuple[Callable[[Specialisation, Operation], Value | None], ...]
] = {
    ast.Is: (compare_identity,),
    ast.IsNot: (compare_identity,),
    ast.In: (find_key, find_in_container),
    ast.NotIn: (find_key, find_in_container),
    ast.Not: (negate_stand_in,),
    ast.Add: (add_tuples, add_lists, combine_mask),
    ast.Mult: (repeat_list, combine_mask),
    ast.BitOr: (combine_sets, combine_mask),
    ast.BitAnd: (combine_sets, combine_mask),
    ast.Sub: (combine_sets,),
    ast.Pow: (check_power,),
}
