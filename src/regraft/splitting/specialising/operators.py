"""Operators: arithmetic, comparisons and `not`, and the cases that need more than the operation."""

from __future__ import annotations

import ast
import copy
import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from regraft.splitting.program.literals import literal
from regraft.splitting.program.possible_constants import (
    TRUTHS,
    operator_outcomes,
    possible_constants,
)
from regraft.splitting.program.residual_expressions import method_call
from regraft.splitting.program.values import (
    EitherValue,
    HostValue,
    RecordValue,
    StaticValue,
    TensorValue,
    Value,
    are_static,
    convert_to_host,
    has_kind,
)
from regraft.splitting.specialising.branches import evaluate_truth
from regraft.splitting.specialising.code_running import run_code, run_operation
from regraft.splitting.specialising.either_values import require_tensors, test_for_none
from regraft.splitting.specialising.elements import list_element_codes
from regraft.splitting.specialising.host_sets import (
    check_members,
    is_closed,
    is_host_set,
    make_set,
    write_members,
)
from regraft.splitting.specialising.object_methods import call_object_method
from regraft.splitting.specialising.record_fields import operate_on_records
from regraft.splitting.specialising.stand_ins import (
    get_places,
    is_dict_stand_in,
    is_stand_in,
)
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.values_stored_under_names import bind_number

# the operators that `combine_mask` replaces, with the functions that compute them
MASK_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Mult: operator.mul,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
}


SET_TYPES = (set, frozenset)
MAX_LIST_LENGTH = 4096  # most repetitions of a list display that are written down


def is_flat_list(code: ast.expr) -> bool:
    """Return whether `code` is a list display of constants and names only."""
    return isinstance(code, ast.List) and all(
        isinstance(element, (ast.Constant, ast.Name)) for element in code.elts
    )


Operator = ast.BinOp | ast.UnaryOp | ast.Compare


@dataclass(frozen=True)
class Operation:
    """An operator of the source with its operands, and the residual expression for it."""

    node: Operator
    operands: list[Value]
    code: ast.expr

    @property
    def operator_type(self) -> type[ast.AST]:
        """Return the type of the operator, of which a comparison has one here."""
        node = self.node
        return type(node.ops[0] if isinstance(node, ast.Compare) else node.op)


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


def find_key(state: Specialisation, operation: Operation) -> Value | None:
    """Return the value of `in` or `not in` of a dictionary that forward makes; None for other
    containers, and for a key known only at run time."""
    key, container = operation.operands
    if not is_dict_stand_in(state, container.example) or not isinstance(key, StaticValue):
        return None
    is_contained = ("item", key.example) in get_places(state, operation.node, container.example)
    return state.static(is_contained == (operation.operator_type is ast.In))


def find_in_container(state: Specialisation, operation: Operation) -> Value | None:
    """Return the value of `in` or `not in` of an object that forward makes whose class has
    `__contains__`, and of a set of which all is known; None for other operands. Raises
    Unsplittable for a tensor in a set."""
    node, (key, container) = operation.node, operation.operands
    sign = operation.operator_type is ast.In
    is_known = isinstance(container, StaticValue) and isinstance(container.example, SET_TYPES)
    if is_known and isinstance(key, HostValue):
        code = ast.Compare(key.code, [operation.node.ops[0]], [write_members(state, container)])  # type: ignore[union-attr]
        return replace(convert_to_host(run_code(state, node, code)), among=TRUTHS)
    if is_host_set(container):
        check_members(state, node, [key])
        if not (is_closed(state, container) and isinstance(key, StaticValue)):
            return None
        return state.static((key.example in container.example) == sign)
    method = getattr(container.example, "__contains__", None)
    if not is_stand_in(state, container.example) or not inspect.ismethod(method):
        return None
    value = evaluate_truth(state, call_object_method(state, node, method, [key], {}))
    return value if sign else negate(state, value)


def negate(state: Specialisation, truth: StaticValue | HostValue) -> Value:
    """Return `not truth`."""
    if isinstance(truth, StaticValue):
        return state.static(not truth.example)
    code = ast.UnaryOp(ast.Not(), truth.code)
    return HostValue(not truth.example, code, not truth.second_example, among=TRUTHS)


def combine_sets(state: Specialisation, operation: Operation) -> Value | None:
    """Return the union, intersection or difference of two sets, one of which the host holds, as a
    new one; None for other operands."""
    if not any(map(is_host_set, operation.operands)):
        return None
    node = copy.copy(operation.node)
    assert isinstance(node, ast.BinOp)
    node.left, node.right = (write_members(state, operand) for operand in operation.operands)
    return make_set(state, node, node, operation.operands)


def negate_stand_in(state: Specialisation, operation: Operation) -> Value | None:
    """Return the value of `not` of an object that forward makes; None for another operand."""
    example = operation.operands[0].example
    if not is_stand_in(state, example):
        return None
    return negate(state, evaluate_truth(state, operation.operands[0]))


def add_tuples(state: Specialisation, operation: Operation) -> Value | None:
    """Return the sum of two tuples written out, one of which the host computes, as one tuple; None
    for other operands."""
    left, right = (list_element_codes(operand) for operand in operation.operands)
    if left is None or right is None or not has_kind(operation.operands, HostValue):
        return None
    code = ast.Tuple([*left, *right], ast.Load())
    return convert_to_host(run_code(state, operation.node, code))


def add_lists(state: Specialisation, operation: Operation) -> Value | None:
    """Return the sum of two lists, one of which the host makes; None for other operands."""
    are_lists = all(isinstance(operand.example, list) for operand in operation.operands)
    if not are_lists or not has_kind(operation.operands, HostValue):
        return None
    return convert_to_host(run_code(state, operation.node, operation.code))


def repeat_list(state: Specialisation, operation: Operation) -> Value | None:
    """Return `[x] * 3` as a list display; None where the list is not written in place or has
    elements other than constants and names, and where the number is not known or above
    MAX_LIST_LENGTH."""
    display, repeats = operation.operands[0].code, operation.operands[1].example
    is_known_number = isinstance(operation.operands[1], StaticValue) and type(repeats) is int
    if not is_flat_list(display) or not is_known_number or repeats > MAX_LIST_LENGTH:
        return None
    code = ast.List(display.elts * repeats, ast.Load())  # type: ignore[attr-defined]
    return convert_to_host(run_code(state, operation.node, code))


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
