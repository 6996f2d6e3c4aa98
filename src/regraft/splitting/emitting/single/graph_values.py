"""Values of the host's names while its program becomes a graph: constants, and typed names of ONNX
values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# the dtypes of Python's numbers as elements of tensors
KINDS = {
    "int": "int64",
    "float": "float64",
    "bool": "bool",
}
SAFE_BOUND = 2**62  # a larger whole number might not fit into 64 bits after the next operation


@dataclass(frozen=True)
class Const:
    """A Python value that is the same for every input."""

    value: Any


@dataclass(frozen=True)
class Number:
    """A Python int, float or bool that is computed at run time, named as a tensor without
    dimensions; the absolute value of an int is at most `bound`."""

    name: str
    kind: str
    bound: int = 2**63


@dataclass(frozen=True)
class Tensor:
    """An array of run time; its rank is None where arrays of several ranks meet."""

    name: str
    dtype: str
    rank: int | None


@dataclass(frozen=True)
class Items:
    """A tuple, list, dict or object whose elements are known one by one.

    kind: "tuple", "list", "dict" or the name of the object's class. keys: the keys of a dict, the
    fields of an object.
    """

    kind: str
    values: tuple[Value, ...]
    keys: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Sequence:
    """A list whose length is known only at run time, as an ONNX sequence; `element` is the type of
    its elements, without a name."""

    name: str
    element: Number | Tensor


@dataclass(frozen=True)
class NestedList:
    """The lists that `tolist()` gives, represented by the tensor `name` itself: nested as deep as
    `depth`, of Python numbers of the kind `kind`."""

    name: str
    kind: str
    dtype: str
    depth: int


@dataclass(frozen=True)
class Text:
    """A string of run time: one whole number between the texts `before` and `after`."""

    before: str
    number: Number
    after: str


@dataclass(frozen=True)
class Range:
    """The value of a call `range(start, stop, step)`."""

    start: Value
    stop: Value
    step: int


@dataclass(frozen=True)
class Maybe:
    """A number, a tensor or a tuple of these, or None: which it is, `present` says at run time."""

    present: Number
    value: Value


@dataclass(frozen=True)
class Zip:
    """The value of a call of `zip` or `enumerate`: the elements of all `values` side by side.
    strict: whether they have to be equally many."""

    values: tuple[Value, ...]
    strict: bool = False


@dataclass(frozen=True)
class Rows:
    """A list of tuples whose length is known only at run time, as lists of equal length side by
    side: `values` has a list for each place of the tuples, or a tensor of as many rows."""

    values: tuple[Value, ...]


@dataclass(frozen=True)
class Undefined:
    """The value of a name on a path that never assigns it."""


Value = (
    Const
    | Number
    | Tensor
    | Items
    | Sequence
    | NestedList
    | Text
    | Range
    | Maybe
    | Zip
    | Rows
    | Undefined
)
UNDEFINED = Undefined()
Names = dict[str, Value]
MUTABLE = (Items, Sequence, NestedList, Rows)


def number_kind(value: Value) -> str | None:
    """Return "int", "float" or "bool" for a number, constant or not; None for any other value."""
    if isinstance(value, Number):
        return value.kind
    if isinstance(value, Const) and type(value.value) in (int, float, bool):
        return type(value.value).__name__
    return None


def bound(value: Value) -> int:
    """Return the largest absolute value that an int or bool may have, a constant's own; 0 for a
    float."""
    if isinstance(value, Const):
        return abs(int(value.value)) if number_kind(value) != "float" else 0
    assert isinstance(value, Number)
    return {"bool": 1, "float": 0}.get(value.kind, value.bound)


_DESCRIPTIONS: dict[type, str] = {
    Sequence: "a list",
    NestedList: "a list",
    Text: "a string",
    Range: "a range",
    Zip: "a zip",
    Rows: "a list of tuples",
}


def describe_value(value: Value) -> str:
    """Return a short description of the value for messages, such as "a tensor of float32"."""
    if isinstance(value, Const):
        constant = value.value
        return "None" if constant is None else f"the {type(constant).__name__} {constant!r}"
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype}"
    if isinstance(value, Number):
        return f"a number ({value.kind})"
    if isinstance(value, Items):
        return f"a {value.kind} of {len(value.values)}"
    if isinstance(value, Maybe):
        return f"{describe_value(value.value)} or None"
    return _DESCRIPTIONS.get(type(value), "nothing")


def count_occurrences(value: Value, sought: Value) -> int:
    """Return how often the list `sought` itself, not an equal one, occurs in `value` and its
    elements."""
    if value is sought:
        return 1
    return (
        sum(count_occurrences(element, sought) for element in value.values)
        if isinstance(value, (Items, Zip))
        else 0
    )


def substitute(value: Value, old: Value, new: Value) -> Value:
    """Return `value` with the list `new` in every place where it has the list `old` itself, at any
    depth."""
    if value is old:
        return new
    if isinstance(value, Zip):
        values = tuple(substitute(element, old, new) for element in value.values)
        return Zip(values, value.strict)
    if isinstance(value, Items) and count_occurrences(value, old):
        return Items(
            value.kind, tuple(substitute(element, old, new) for element in value.values), value.keys
        )
    return value


def leaves(value: Value) -> Iterator[Number | Tensor | Sequence | NestedList]:
    """Yield the numbers of run time, tensors and lists in a value or template, in order: what has
    an ONNX name, or ("" as its name) is to get one. Constants have none."""
    if isinstance(value, (Items, Rows)):
        for element in value.values:
            yield from leaves(element)
    elif isinstance(value, Maybe):
        yield value.present
        yield from leaves(value.value)
    elif isinstance(value, (Number, Tensor, Sequence, NestedList)):
        yield value
