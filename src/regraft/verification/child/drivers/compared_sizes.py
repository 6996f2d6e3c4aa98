"""A fixer of a model's inputs for a test of sizes that failed, as in `assert length == h * w`."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from regraft.verification.child.drivers.argument_slots import Dim, Spec
from regraft.verification.child.drivers.described_shapes import parsed_statement
from regraft.verification.child.drivers.input_fixers import InputProblem
from regraft.verification.child.drivers.shape_fixers import shape_of
from regraft.verification.child.frame_numbers import Number, numbers_of

_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def fit_compared_sizes(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs of which one has another size along a dimension: the number that the size had to
    be equal to, or a multiple of the number that had to divide it, where the error comes from a
    test of this. The sizes are those of the frame that raised the error."""
    numbers = numbers_of(problem.failed.error)
    for node in ast.walk(parsed_statement(problem.test)):
        for size, wanted in _wanted_sizes(node, numbers):
            yield from _with_sizes(problem.spec, size, wanted)


def _with_sizes(spec: Spec, size: int, wanted: int) -> Iterator[Spec]:
    """Yield the inputs with each dimension of a size changed to another, one after the other."""
    for name, slot in spec.items():
        for axis, actual in enumerate(shape_of(slot)):
            if actual == size:
                dims = (*slot.dims[:axis], Dim(wanted), *slot.dims[axis + 1 :])
                yield {**spec, name: replace(slot, dims=dims)}


def _wanted_sizes(node: ast.AST, numbers: Mapping[str, Number]) -> Iterator[tuple[int, int]]:
    """Yield pairs of a size and the size that would satisfy a test: two numbers that it compares,
    and a number with its next multiple where it takes a remainder; nothing for another node."""
    match node:
        case ast.Compare(left, [ast.Eq() | ast.NotEq()], [right]):
            first, second = _value(left, numbers), _value(right, numbers)
            candidates = [(first, second), (second, first)]
        case ast.BinOp(left, ast.Mod(), right):
            first, second = _value(left, numbers), _value(right, numbers)
            remainder = _result(ast.Mod(), first, second)
            missing = second - remainder if isinstance(second, int) and remainder else None
            candidates = [(first, _result(ast.Add(), first, missing))]
        case _:
            return
    for size, wanted in candidates:
        if isinstance(size, int) and isinstance(wanted, int) and 0 < wanted != size:
            yield size, wanted


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
