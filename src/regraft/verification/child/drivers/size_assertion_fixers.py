"""Fixers of a model's inputs for a test of sizes that failed, as in `assert length == h * w`.

Each function that takes a problem is the fixer of a row of `input_repairs`, as in `input_fixers`.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping

from regraft.verification.child.drivers.argument_slots import Dim, Spec
from regraft.verification.child.drivers.described_shapes import parsed_statement
from regraft.verification.child.drivers.input_fixers import InputProblem, with_changed_slot
from regraft.verification.child.frame_numbers import Number, numbers_of

_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def fit_compared_sizes(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs of which one has another size along a dimension, the number that the size had to
    be equal to, where the error comes from a test of this. The sizes are those of the frame that
    raised the error."""
    numbers = numbers_of(problem.failed.error)
    for node in ast.walk(parsed_statement(problem.test)):
        match node:
            case ast.Compare(left, [ast.Eq() | ast.NotEq()], [right]):
                first, second = _value(left, numbers), _value(right, numbers)
                yield from _with_sizes(problem, first, second)
                yield from _with_sizes(problem, second, first)


def fit_divided_sizes(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs of which one has another size along a dimension, the next multiple of the number
    that had to divide the size, where the error comes from a test of a remainder."""
    numbers = numbers_of(problem.failed.error)
    for node in ast.walk(parsed_statement(problem.test)):
        match node:
            case ast.BinOp(left, ast.Mod(), right):
                size, divisor = _value(left, numbers), _value(right, numbers)
                remainder = _result(ast.Mod(), size, divisor)
                missing = divisor - remainder if isinstance(divisor, int) and remainder else None
                yield from _with_sizes(problem, size, _result(ast.Add(), size, missing))


def _with_sizes(
    problem: InputProblem, size: Number | None, wanted: Number | None
) -> Iterator[Spec]:
    """Yield the inputs with each dimension of a size changed to another, one after the other;
    nothing where either is unknown."""
    if not (isinstance(wanted, int) and 0 < wanted != size):
        return
    for name, slot in problem.spec.items():
        for axis, dim in enumerate(slot.dims):
            if dim.at(problem.failed.size) == size:
                dims = (*slot.dims[:axis], Dim(wanted), *slot.dims[axis + 1 :])
                yield with_changed_slot(problem.spec, name, dims=dims)


def _value(node: ast.expr, numbers: Mapping[str, Number]) -> Number | None:
    """Return the number, or sequence of numbers, of an expression; None where it is unknown."""
    match node:
        case ast.Constant(int(value)) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(ast.USub(), operand):
            operand_value = _value(operand, numbers)
            return -operand_value if isinstance(operand_value, int) else None
        case ast.BinOp(left, op, right) if type(op) in _OPERATIONS:
            return _result(op, _value(left, numbers), _value(right, numbers))
        case ast.Subscript(sequence, index):
            return _element(_value(sequence, numbers), _value(index, numbers))
        case ast.Call(ast.Attribute(tensor, "size"), [], []):
            return numbers.get(f"{ast.unparse(tensor)}.shape")
        case ast.Call(ast.Attribute(tensor, "size"), [axis], []):
            shape = numbers.get(f"{ast.unparse(tensor)}.shape")
            return _element(shape, _value(axis, numbers))
        case ast.Call(ast.Name("len"), [sequence], []):
            elements = _value(sequence, numbers)
            return len(elements) if isinstance(elements, tuple) else None
    return numbers.get(ast.unparse(node))


def _result(op: ast.operator, first: Number | None, second: Number | None) -> int | None:
    """Return the result of an operation on two integers; None where it has none, or where either is
    unknown."""
    if not (isinstance(first, int) and isinstance(second, int)):
        return None
    is_undefined = second == 0 and isinstance(op, ast.FloorDiv | ast.Mod)
    return None if is_undefined else _OPERATIONS[type(op)](first, second)


def _element(sequence: Number | None, index: Number | None) -> int | None:
    """Return an element of a sequence of numbers; None where either is unknown or it has no such
    element."""
    if not (isinstance(sequence, tuple) and isinstance(index, int)):
        return None
    return sequence[index] if -len(sequence) <= index < len(sequence) else None
