"""Values that are a tensor on some of the paths that lead here, and one and the same constant on
the others (EitherValue): their tests, and their use as tensors."""

from __future__ import annotations

import ast
from typing import Any

import torch

from regraft.splitting.program.literals import literal
from regraft.splitting.program.residual import Branch, HostStep
from regraft.splitting.program.residual_expressions import method_call, name
from regraft.splitting.program.statements import Assign, raise_message
from regraft.splitting.program.type_patterns import fit_one_variable, open_dimensions
from regraft.splitting.program.value_kinds_and_parts import get_alternative
from regraft.splitting.program.values import (
    EitherValue,
    HostValue,
    LostValue,
    RecordValue,
    StaticValue,
    TensorValue,
    Value,
)
from regraft.splitting.specialising.state import Specialisation


def test_for_none(state: Specialisation, node: ast.expr, operands: list[Value]) -> Value | None:
    """Return the value of `x is None` or `x is not None` of an EitherValue: the host's test, or a
    constant where its constant is not None. None for another operator; raise Unsplittable for
    identity with anything but None."""
    if not (isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot))):
        return None
    if not isinstance(operands[1], StaticValue) or operands[1].example is not None:
        raise state.refuse(node, f"{ast.unparse(node)} is not supported")
    differs = isinstance(node.ops[0], ast.IsNot)
    tested = operands[0]
    if isinstance(tested, EitherValue) and tested.instead is not None:
        return state.static(differs)
    return HostValue(differs, ast.Compare(tested.code, node.ops, [ast.Constant(None)]))


def get_constant(state: Specialisation, key: str) -> Any:
    """Return the constant that a name holds on some paths; None if that is None, and for a name
    that holds no EitherValue."""
    value = state.names[key]
    return value.instead if isinstance(value, EitherValue) else None


def write_constant_test(state: Specialisation, key: str) -> Value:
    """Return the test by which the host tells whether a name holds its constant: `x is None` where
    that is None; for a number the opposite test, whether the name holds an array, because a number
    has no identity."""
    if get_constant(state, key) is None:
        return HostValue(False, ast.Compare(name(key), [ast.Is()], [ast.Constant(None)]))
    arrays = ast.parse("(numpy.ndarray, numpy.generic)", mode="eval").body
    return HostValue(True, ast.Call(name("isinstance"), [name(key), arrays], []))


def bind_alternative(state: Specialisation, value: EitherValue) -> Value:
    """Append a step that assigns an EitherValue to a new name, on a path where it is not its
    constant, and return its alternative (the tensor, or the host's value) under this name."""
    key = state.fresh_name()
    state.steps.append(HostStep(Assign(key, value.code)))
    return state.bind_name(key, get_alternative(value))


def require_tensor(state: Specialisation, node: ast.AST, value: Value, error: str) -> Value:
    """Return the value; of an EitherValue append a branch in which the host raises `error` where
    the value is None, and return the alternative. Raises Cases where its constant is a number.

    error: the name of one of Python's own errors.
    """
    if not isinstance(value, EitherValue):
        return value
    if value.instead is not None:
        state.require_single_kind(node, value)
    is_none = ast.Compare(value.code, [ast.Is()], [ast.Constant(None)])
    raised = HostStep(raise_message(error, "None"))
    state.steps.append(
        Branch([(is_none, [raised])], getattr(node, "lineno", 0), state.frame.path, [""])
    )
    return bind_alternative(state, value)


def require_tensors(state: Specialisation, node: ast.expr, operands: list[Value]) -> list[Value]:
    """Return the operands, of which each EitherValue is made a tensor: where it may be None, the
    host raises TypeError; a number is filled into a tensor if that gives the same result, else
    Cases is raised. Other operands stay as they are."""
    tensors = []
    for operand in operands:
        if isinstance(operand, EitherValue) and operand.instead is not None:
            other_operands = [candidate for candidate in operands if candidate is not operand]
            tensors.append(
                fill_array(state, operand)
                if can_fill(node, operand, other_operands)
                else state.require_single_kind(node, operand)
            )
        else:
            tensors.append(require_tensor(state, node, operand, "TypeError"))
    return tensors


def fill_array(state: Specialisation, value: EitherValue) -> Value:
    """Return a number or tensor as a tensor: a step of the host fills an array of the tensor's
    shape and type."""
    shape = state.static(tuple(value.example.shape)).code
    dtype_name = ast.Constant(str(value.example.dtype).partition(".")[2])
    code = method_call(
        name("numpy"),
        "array",
        method_call(name("numpy"), "broadcast_to", value.code, shape),
        dtype_name,
    )
    return state.bind_in_host(TensorValue(value.example, code, value.twin, partial=value.partial))


def find_tested_constant(test: ast.expr) -> tuple[str, bool] | None:
    """Return the name whose constant a test asks about, and whether the name holds the constant
    where the test is true: (x, True) for any `x is ...`, (x, False) for `x is not ...` and for
    `isinstance(x, ...)`; None for any other test, `not isinstance(...)` among them.

    The tests are those of `write_constant_test`, and `x is not None`: where isinstance() is true,
    the name holds an array, not its constant.
    """
    match test:
        case ast.Compare(ast.Name(key), [ast.Is() | ast.IsNot() as operator, *_]):
            return key, isinstance(operator, ast.Is)
        case ast.Call(ast.Name("isinstance"), [ast.Name(key), *_]):
            return key, False
    return None


def can_fill(node: ast.expr, value: EitherValue, other_operands: list[Value]) -> bool:
    """Return whether an operation gives the same for the constant number of `value` as for a tensor
    full of it, so that the host may fill one.

    False unless there is one other operand, all sizes are fixed and the tensor's type holds the
    number exactly. The other operand has to be a tensor to whose shape the filled one broadcasts
    and with which it promotes to the same type, or a number in a comparison of which only the truth
    counts.
    """
    tensor, number = value.example, value.instead
    if len(other_operands) != 1 or open_dimensions(value) or not is_exact(number, tensor):
        return False
    other_example = other_operands[0].example
    if (
        type(other_example) in (int, float)
        and isinstance(node, ast.Compare)
        and getattr(node, "truth_only", False)
    ):
        return tensor.numel() == 1 and is_exact(other_example, tensor)
    if (
        not isinstance(other_operands[0], TensorValue)
        or not isinstance(other_example, torch.Tensor)
        or open_dimensions(other_operands[0])
    ):
        return False
    sizes = zip(tensor.shape[::-1], other_example.shape[::-1], strict=False)
    can_broadcast = tensor.ndim <= other_example.ndim and all(
        size in (1, other_size) for size, other_size in sizes
    )
    return can_broadcast and torch.result_type(tensor, other_example) == torch.result_type(
        number, other_example
    )


def is_exact(number: float, tensor: torch.Tensor) -> bool:
    """Return whether a tensor of this type can hold the number as it is."""
    return bool(torch.tensor(number).to(tensor.dtype).double().item() == number)


def is_equal_constant(left: Any, right: Any) -> bool:
    """Return whether both are one object, or equal constants of one type."""
    if left is right:
        return True
    return literal(left) is not None and type(left) is type(right) and repr(left) == repr(right)


def mixes_none(values: list[Value]) -> bool:
    """Return whether some of the values are None, or may be, others are not, and one variable of
    the host may hold all of them."""
    are_none = [isinstance(value, StaticValue) and value.example is None for value in values]
    has_either = any(isinstance(value, EitherValue) and value.instead is None for value in values)
    return (has_either or (any(are_none) and not all(are_none))) and not any(
        isinstance(value, (RecordValue, LostValue)) for value in values
    )


def fits_either(value: EitherValue, new_value: Value) -> bool:
    """Return whether `new_value` may take the place of `value`: it is the constant, or has the type
    of the alternative and no other constant."""
    if isinstance(new_value, StaticValue):
        return is_equal_constant(value.instead, new_value.example)
    if isinstance(new_value, EitherValue) and not is_equal_constant(
        value.instead, new_value.instead
    ):
        return False
    alternative = get_alternative(new_value)
    return type(alternative) is type(value.alternative) and fit_one_variable(value, new_value)
