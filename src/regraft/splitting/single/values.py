"""What a name of the host holds while its program becomes a graph: constants, and names of ONNX values with types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

KINDS = {"int": "int64", "float": "float64", "bool": "bool"}  # Python's numbers as elements of tensors
WIDE = 2**62  # beyond it a whole number might not fit after the next operation


@dataclass(frozen=True)
class Const:
    """A Python value that is the same for every input."""

    value: Any


@dataclass(frozen=True)
class Number:
    """A Python int, float or bool, as a tensor without dimensions. bound: of the absolute value of an int."""

    name: str
    kind: str
    bound: int = 2**63


@dataclass(frozen=True)
class Tensor:
    """An array; rank None where paths with several meet."""

    name: str
    dtype: str
    rank: int | None


@dataclass(frozen=True)
class Items:
    """A tuple, list or dict whose elements are known one by one. keys: of a dict."""

    kind: str
    values: tuple[Value, ...]
    keys: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Sequence:
    """A list whose length is known only at run time, as an ONNX sequence; `element` is what each of it is."""

    name: str
    element: Number | Tensor


@dataclass(frozen=True)
class Listed:
    """What `tolist()` gives: lists in lists, as deep as `depth`, of the numbers of a tensor."""

    name: str
    kind: str
    dtype: str
    depth: int


@dataclass(frozen=True)
class Text:
    """An f-string with one whole number in it."""

    before: str
    number: Number
    after: str


@dataclass(frozen=True)
class Range:
    """`range(start, stop, step)`."""

    start: Value
    stop: Value
    step: int


@dataclass(frozen=True)
class Undefined:
    """What a name holds on a path that never assigns it."""


Value = Const | Number | Tensor | Items | Sequence | Listed | Text | Range | Undefined
UNDEFINED = Undefined()
Names = dict[str, Value]
MUTABLE = (Items, Sequence, Listed)


def number_kind(value: Value) -> str | None:
    """ "int", "float" or "bool" of a number, constant or not."""
    if isinstance(value, Number):
        return value.kind
    if isinstance(value, Const) and type(value.value) in (int, float, bool):
        return type(value.value).__name__
    return None


def bound(value: Value) -> int:
    """What the absolute value of a whole number cannot exceed."""
    if isinstance(value, Const):
        return abs(int(value.value)) if number_kind(value) != "float" else 0
    assert isinstance(value, Number)
    return {"bool": 1, "float": 0}.get(value.kind, value.bound)


def described(value: Value) -> str:
    """For messages."""
    if isinstance(value, Const):
        return "None" if value.value is None else f"the {type(value.value).__name__} {value.value!r}"
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype}"
    if isinstance(value, Number):
        return f"a number ({value.kind})"
    if isinstance(value, Items):
        return f"a {value.kind} of {len(value.values)}"
    return {Sequence: "a list", Listed: "a list", Text: "a string", Range: "a range"}.get(type(value), "nothing")


def holders(value: Value, sought: Value) -> int:
    """How often the list `sought` is held by `value`."""
    if value is sought:
        return 1
    return sum(holders(one, sought) for one in value.values) if isinstance(value, Items) else 0


def replaced(value: Value, old: Value, new: Value) -> Value:
    """`value` with the list `old` changed to `new`, wherever it is held."""
    if value is old:
        return new
    if isinstance(value, Items) and holders(value, old):
        return Items(value.kind, tuple(replaced(one, old, new) for one in value.values), value.keys)
    return value


def leaves(value: Value) -> Iterator[Number | Tensor | Sequence | Listed]:
    """The ONNX values in it, in order."""
    if isinstance(value, Items):
        for one in value.values:
            yield from leaves(one)
    elif isinstance(value, (Number, Tensor, Sequence, Listed)):
        yield value
