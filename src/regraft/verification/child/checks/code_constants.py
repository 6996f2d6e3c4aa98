"""Find the numbers in changed code, which are sizes and values at which its behaviour may
change."""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from regraft.verification.child.checks.code_replacement import syntax_tree
from regraft.verification.definition_changes import Change

_LIMIT = 8  # the most constants of one kind
_FOLDERS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda x, y: x + y,
    ast.Sub: lambda x, y: x - y,
    ast.Mult: lambda x, y: x * y,
    ast.Div: lambda x, y: x / y,
    ast.FloorDiv: lambda x, y: x // y,
    ast.LShift: lambda x, y: x << y,
    ast.Pow: lambda x, y: x**y,
}
_SMALLEST_SIZE, _LARGEST_SIZE = 3, 8192
_LARGEST = 1 << 20  # the largest operand of an expression that is evaluated


@dataclass(frozen=True, slots=True)
class Constants:
    """Numbers of changed lines.

    `sizes` are integers that may be sizes, `counts` larger ones that may be numbers of elements,
    `values` all numbers.
    """

    sizes: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()

    def with_sizes(self, sizes: Iterable[int]) -> Constants:
        """Return the constants with further sizes, at most `_LIMIT` in all."""
        usable = (size for size in sizes if _SMALLEST_SIZE <= size <= _LARGEST_SIZE)
        return replace(self, sizes=tuple(dict.fromkeys((*self.sizes, *usable)))[:_LIMIT])


def constants_of(parts: Iterable[tuple[Iterable[ast.expr], ModuleType]]) -> Constants:
    """Return the constants among expressions, each group with its module, in order and without
    duplicates, values of module variables included.

    At most `_LIMIT` are sizes, whole numbers from `_SMALLEST_SIZE` to `_LARGEST_SIZE`, and at most
    `_LIMIT` are values, up to a million in size; only the first larger whole number, up to
    `_LARGEST`, is a count.
    """
    numbers: dict[float, None] = {}
    for nodes, module in parts:
        for node in nodes:
            number = _number(node, module)
            if number is not None:
                numbers[number] = None
    whole_numbers = [int(number) for number in numbers if number == int(number)]
    sizes = [number for number in whole_numbers if _SMALLEST_SIZE <= number <= _LARGEST_SIZE]
    values = [number for number in numbers if abs(number) <= 1e6]
    counts = [number for number in whole_numbers if _LARGEST_SIZE < number <= _LARGEST]
    return Constants(tuple(sizes[:_LIMIT]), tuple(values[:_LIMIT]), tuple(counts[:1]))


def changed_nodes(change: Change, module: ModuleType) -> Iterator[ast.expr]:
    """Yield the expressions, nested ones included, that begin in the changed lines of a
    definition."""
    nodes = _nodes_in_changed_lines(change, module)
    yield from (node for node in nodes if isinstance(node, ast.expr))


def read_nodes(change: Change, module: ModuleType) -> Iterator[ast.expr]:
    """Yield the expressions that begin in the changed lines of a definition and whose value is
    read: not the targets of assignments, but for those that an operation changes (`n += 1`)."""
    for node in _nodes_in_changed_lines(change, module):
        if isinstance(node, ast.AugAssign):
            yield node.target
        elif isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            yield node


def changed_tests(change: Change, module: ModuleType) -> Iterator[ast.expr]:
    """Yield the tests of the `if` statements and expressions that begin in the changed lines of a
    definition."""
    nodes = _nodes_in_changed_lines(change, module)
    yield from (node.test for node in nodes if isinstance(node, ast.If | ast.IfExp))


@functools.cache
def _nodes_in_changed_lines(change: Change, module: ModuleType) -> tuple[ast.expr | ast.stmt, ...]:
    """Return the expressions and statements that begin in the changed lines of a definition. They
    are cached: every instance of a class asks for them."""
    return tuple(
        node
        for node in ast.walk(syntax_tree(str(module.__file__)))
        if isinstance(node, ast.expr | ast.stmt)
        and any(start <= node.lineno <= end for start, end in change.statements)
    )


def _number(node: ast.expr, module: ModuleType) -> float | None:
    """Return the finite number that an expression of constants and module variables stands for;
    None for other expressions, for booleans, and where an operand is larger than `_LARGEST`."""
    value: Any = None
    match node:
        case ast.Constant(value=value):
            pass
        case ast.Name(id=name):
            value = vars(module).get(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            negated = _number(operand, module)
            value = None if negated is None else -negated
        case ast.BinOp(first, op, second) if type(op) in _FOLDERS:
            operands = _number(first, module), _number(second, module)
            if None not in operands and all(abs(number or 0) <= _LARGEST for number in operands):
                value = _evaluate(op, *operands)
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_real and math.isfinite(value) else None


def _evaluate(op: ast.operator, first: Any, second: Any) -> Any:
    """Return the result of an operation on two numbers; None where it has none, such as a division
    by zero."""
    try:
        return _FOLDERS[type(op)](first, second)
    except (ArithmeticError, TypeError, ValueError, MemoryError):
        return None  # there is no result: a division by zero, a shift by a negative number
