"""Values while a network is specialised: each carries what it holds in the example that is followed."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from regraft.splitting.worlds import longer

Names = dict[str, "Value"]


SAME: Any = object()  # the second world holds what the first does


@dataclass(frozen=True)
class Value:
    """What a name or an expression holds.

    kind: "static" (known now, whatever the input), "host" (a Python value that the host computes), "tensor"
    (computed by regions), "record" (an object with named fields, known field by field), "either" (a tensor on some
    paths, the constant `instead` on others; beside None also what the host computes) or "lost" (differs in type
    between paths). example: its value in the example. code: the expression for it. twin: its value in the second
    world (worlds.py). constant: no input decides it, here. partial: only some of the paths here assign it.
    among: the constants of which a value of the host is one, if these are known (possible.py). truth: the host's truth
    of what may be a tensor in the original (`a and b`).
    """

    kind: str
    example: Any
    code: ast.expr
    twin: Any = SAME
    constant: bool = False
    partial: bool = False
    instead: Any = None
    among: tuple[Any, ...] | None = None
    truth: bool = False

    @property
    def other(self) -> Any:
        return self.example if self.twin is SAME else self.twin

    @property
    def fields(self) -> dict[Any, ast.expr]:
        """The elements of a tuple written in place, or the fields of a record; empty for anything else."""
        if self.kind == "record":
            assert isinstance(self.code, ast.Call)
            return {one.arg: one.value for one in self.code.keywords}
        return dict(enumerate(self.code.elts)) if isinstance(self.code, ast.Tuple) and self.kind == "host" else {}

    def with_fields(self, codes: list[ast.expr]) -> Value:
        """The same with other expressions for its elements or fields."""
        if isinstance(self.code, ast.Tuple):
            return replace(self, code=ast.Tuple(codes, ast.Load()))
        assert isinstance(self.code, ast.Call)
        words = [ast.keyword(word, code) for word, code in zip(self.fields, codes, strict=True)]
        return replace(self, code=ast.Call(self.code.func, [], words))

    def named(self, key: str) -> Value:
        """The same under a name."""
        return replace(self, code=ast.Name(key, ast.Load()))

    def parts(self) -> list[tuple[Any, Any]]:
        """The elements of a tuple, list or tensor, in both worlds; more of them in the second are left out."""
        examples = list(self.example)
        return list(zip(examples, list(self.other) if self.twin is not SAME else [SAME] * len(examples), strict=False))


def pattern(example: Any, other: Any) -> Any:
    """The type of a value in both worlds: dtype and shape of tensors (None: open), the element types of a list."""
    if isinstance(example, torch.Tensor) and isinstance(other, torch.Tensor):
        sizes = zip(example.shape, other.shape, strict=False)
        return ("tensor", example.dtype, example.ndim, tuple(one if one == two else None for one, two in sizes))
    if isinstance(example, list):
        pairs = zip(example, other, strict=False) if len(example) <= len(other) else zip(example, example, strict=True)
        return ("list", frozenset(pattern(*pair) for pair in pairs))
    if isinstance(example, tuple):
        return ("tuple", tuple(map(pattern, example, other)))
    if isinstance(example, dict):
        return ("dict", tuple((key, pattern(item, other[key])) for key, item in example.items()))
    return type(example)


def same_type(left: Value, right: Value) -> bool:
    """Whether both fit one variable; an empty list fits every list."""
    if isinstance(left.example, list) and isinstance(right.example, list) and not (left.example and right.example):
        return True
    return bool(pattern(left.example, left.other) == pattern(right.example, right.other))


def open_sizes(value: Value) -> tuple[int, ...]:
    """The dimensions of a tensor that differ between the worlds."""
    sizes = zip(value.example.shape, value.other.shape, strict=True)
    return tuple(dim for dim, (one, two) in enumerate(sizes) if one != two)


def opened(value: Value, other: Value) -> Value | None:
    """`value` with every dimension open in which both differ; None where they differ in more than sizes."""
    one, two = value.example, other.example
    if not (isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor)):
        return None
    if one.dtype != two.dtype or one.ndim != two.ndim:
        return None
    differ = {dim for dim in range(one.ndim) if one.shape[dim] != two.shape[dim]} | set(open_sizes(other))
    return replace(value, twin=longer(value.other, sorted(differ - set(open_sizes(value)))))


def literal(value: Any) -> ast.expr | None:
    """The source text of a constant that needs no import; None where there is none."""
    if value is None or type(value) in (bool, int, float, str):
        if type(value) is float and not math.isfinite(value):
            return infinite(value)
        return ast.parse(repr(value), mode="eval").body
    if type(value) in (tuple, list, torch.Size):
        items = [literal(item) for item in value]
        if all(item is not None for item in items):
            make = ast.Tuple if isinstance(value, tuple) else ast.List
            return make([item for item in items if item is not None], ast.Load())
    return None


def infinite(value: float) -> ast.expr | None:
    """Infinity, which Python writes as a number that is too large; None for what is no number."""
    if math.isnan(value):
        return None
    number = ast.Constant(math.inf)
    return number if value > 0 else ast.UnaryOp(ast.USub(), number)


def lists_in(example: Any) -> Iterator[list[Any]]:
    """The lists in lists, tuples and dictionaries, this one among them."""
    if isinstance(example, list):
        yield example
    if isinstance(example, (list, tuple, dict)):
        for one in example.values() if isinstance(example, dict) else example:
            yield from lists_in(one)


def lengths(example: Any) -> tuple[int, ...]:
    return tuple(len(one) for one in lists_in(example))


def fork(names: Names, memo: dict[int, Any] | None = None) -> Names:
    """The same names with containers of their own, so that one branch's changes stay out of the other's.

    memo: gets the copies, by the ids of what they were made of.
    """
    memo = {} if memo is None else memo

    def copy(value: Any) -> Any:
        if type(value) not in (list, dict):
            return value
        if id(value) not in memo:
            memo[id(value)] = made = type(value)()
            if isinstance(value, list):
                made.extend(copy(item) for item in value)
            else:
                made.update((key, copy(item)) for key, item in value.items())
        return memo[id(value)]

    return {
        name: replace(value, example=copy(value.example), twin=copy(value.twin)) if value.kind == "host" else value
        for name, value in names.items()
    }
