"""Values while a network is specialised: each carries what it holds in the example that is
followed."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import torch

from regraft.splitting.program.worlds import lengthen

Names = dict[str, "Value"]
_CONTAINERS = frozenset({list, dict})


NO_TWIN: Any = object()  # the second world holds what the first does


class Kind(Enum):
    """The kinds of values, by what computes them."""

    STATIC = "static"  # known now, whatever the input
    HOST = "host"  # a Python value that the host computes
    TENSOR = "tensor"  # computed by regions
    RECORD = "record"  # an object with named fields, known field by field
    # a tensor on some paths, a constant on others; beside None also what the host computes
    EITHER = "either"
    LOST = "lost"  # differs in type between paths


@dataclass(frozen=True)
class Value:
    """A value of a name or an expression.

    example: its value in the example. code: the expression for it. twin: its value in the second
    world (worlds.py). constant: no input decides it, here. partial: only some of the paths here
    assign it. instead: the constant that it is on some paths, if its kind is EITHER. among: the
    constants of which a value of the host is one, if these are known (possible.py). truth: the
    value is the host's truth of what may be a tensor in the original (`a and b`).
    """

    kind: Kind
    example: Any
    code: ast.expr
    twin: Any = NO_TWIN
    constant: bool = False
    partial: bool = False
    instead: Any = None
    among: tuple[Any, ...] | None = None
    truth: bool = False

    @property
    def second_example(self) -> Any:
        """Return the value in the second world."""
        return self.example if self.twin is NO_TWIN else self.twin

    @property
    def fields(self) -> dict[Any, ast.expr]:
        """Return the elements of a tuple written in place, or the fields of a record; empty for
        anything else."""
        if self.kind == Kind.RECORD:
            assert isinstance(self.code, ast.Call)
            return {keyword.arg: keyword.value for keyword in self.code.keywords}
        return (
            dict(enumerate(self.code.elts))
            if isinstance(self.code, ast.Tuple) and self.kind == Kind.HOST
            else {}
        )

    def with_fields(self, codes: list[ast.expr]) -> Value:
        """Return the value with other expressions for its elements or fields."""
        if isinstance(self.code, ast.Tuple):
            return replace(self, code=ast.Tuple(codes, ast.Load()))
        assert isinstance(self.code, ast.Call)
        keywords = [
            ast.keyword(field, code) for field, code in zip(self.fields, codes, strict=True)
        ]
        return replace(self, code=ast.Call(self.code.func, [], keywords))

    def with_name(self, key: str) -> Value:
        """Return the value under the name `key`."""
        return replace(self, code=ast.Name(key, ast.Load()))

    def parts(self) -> list[tuple[Any, Any]]:
        """Return the elements of a tuple, list or tensor in both worlds, without any that only the
        second has."""
        examples = list(self.example)
        return list(
            zip(
                examples,
                list(self.second_example)
                if self.twin is not NO_TWIN
                else [NO_TWIN] * len(examples),
                strict=False,
            )
        )


def has_kind(values: Iterable[Value], kind: Kind) -> bool:
    """Return whether one of the values is of a kind."""
    return any(value.kind == kind for value in values)


def type_pattern(example: Any, second_example: Any) -> Any:
    """Return the type of a value in both worlds: dtype and shape of tensors (None: open), element
    types of a list."""
    if isinstance(example, torch.Tensor) and isinstance(second_example, torch.Tensor):
        sizes = zip(example.shape, second_example.shape, strict=False)
        return (
            "tensor",
            example.dtype,
            example.ndim,
            tuple(size if size == second_size else None for size, second_size in sizes),
        )
    if isinstance(example, list):
        pairs = (
            zip(example, second_example, strict=False)
            if len(example) <= len(second_example)
            else zip(example, example, strict=True)
        )
        return ("list", frozenset(type_pattern(*pair) for pair in pairs))
    if isinstance(example, tuple):
        return ("tuple", tuple(map(type_pattern, example, second_example)))
    if isinstance(example, dict):
        return (
            "dict",
            tuple(
                (key, type_pattern(element, second_example[key]))
                for key, element in example.items()
            ),
        )
    return type(example)


def same_type(left: Value, right: Value) -> bool:
    """Return whether both values fit one variable; an empty list fits every list."""
    if (
        isinstance(left.example, list)
        and isinstance(right.example, list)
        and not (left.example and right.example)
    ):
        return True
    return bool(
        type_pattern(left.example, left.second_example)
        == type_pattern(right.example, right.second_example)
    )


def open_dimensions(value: Value) -> tuple[int, ...]:
    """Return the dimensions of a tensor whose sizes differ between the worlds."""
    sizes = zip(value.example.shape, value.second_example.shape, strict=True)
    return tuple(dim for dim, (size, second_size) in enumerate(sizes) if size != second_size)


def open_differing_sizes(value: Value, other: Value) -> Value | None:
    """Return `value` with every dimension open in which both differ or `other` is open; None unless
    both are tensors that differ in no more than sizes."""
    example, other_example = value.example, other.example
    if not (isinstance(example, torch.Tensor) and isinstance(other_example, torch.Tensor)):
        return None
    if example.dtype != other_example.dtype or example.ndim != other_example.ndim:
        return None
    differing = {
        dim for dim in range(example.ndim) if example.shape[dim] != other_example.shape[dim]
    } | set(open_dimensions(other))
    return replace(
        value, twin=lengthen(value.second_example, sorted(differing - set(open_dimensions(value))))
    )


def literal(value: Any) -> ast.expr | None:
    """Return the expression of None, a truth value, number or string, or of a tuple (a torch.Size,
    too) or list of these; None if there is none, as for NaN."""
    if value is None or type(value) in (bool, int, float, str):
        if type(value) is float and not math.isfinite(value):
            return infinity(value)
        return ast.parse(repr(value), mode="eval").body
    if type(value) in (tuple, list, torch.Size):
        elements = [literal(element) for element in value]
        if all(element is not None for element in elements):
            display_type = ast.Tuple if isinstance(value, tuple) else ast.List
            return display_type(
                [element for element in elements if element is not None], ast.Load()
            )
    return None


def infinity(value: float) -> ast.expr | None:
    """Return the expression for plus or minus infinity, which Python writes as a number that is too
    large; None for NaN."""
    if math.isnan(value):
        return None
    number = ast.Constant(math.inf)
    return number if value > 0 else ast.UnaryOp(ast.USub(), number)


def lists_in(example: Any) -> Iterator[list[Any]]:
    """Yield the lists in lists, tuples and dictionaries, `example` itself among them."""
    if isinstance(example, list):
        yield example
    if isinstance(example, (list, tuple, dict)):
        for element in example.values() if isinstance(example, dict) else example:
            yield from lists_in(element)


def list_lengths(example: Any) -> tuple[int, ...]:
    """Return the lengths of the lists in lists, tuples and dictionaries, in the order of
    `lists_in`."""
    return tuple(len(inner_list) for inner_list in lists_in(example))


def fork(names: Names, memo: dict[int, Any] | None = None) -> Names:
    """Return the names with containers of their own for the values of the host, so that one
    branch's changes stay out of the other's.

    memo: gets the copies, by the ids of the containers that were copied.
    """
    memo = {} if memo is None else memo

    def copy(value: Any) -> Any:
        if type(value) not in _CONTAINERS:
            return value
        if id(value) not in memo:
            memo[id(value)] = container = type(value)()
            if isinstance(value, list):
                is_flat = _CONTAINERS.isdisjoint(map(type, value))
                container.extend(value if is_flat else map(copy, value))
            else:
                container.update((key, copy(element)) for key, element in value.items())
        return memo[id(value)]

    return {
        name: replace(value, example=copy(value.example), twin=copy(value.twin))
        if value.kind == Kind.HOST
        else value
        for name, value in names.items()
    }
