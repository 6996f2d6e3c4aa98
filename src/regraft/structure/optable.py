"""The canonical operations of PyTorch: spellings, signatures, layers (from the generated `ops_table.json`)."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, TypeVar

T = TypeVar("T")

OPERATORS = {"+": "add", "-": "sub", "*": "mul", "/": "div", "@": "matmul", "**": "pow", "neg": "neg"}
COMMUTATIVE = frozenset({"add", "mul"})


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a signature; `default` is meaningful when `optional`; `rest` is for `*args` and `**kwargs`."""

    name: str
    keyword_only: bool
    optional: bool
    default: object = None
    rest: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """A canonical operation: its signatures (longest first), the kind of its result, and whether it is random.

    variadic  the parameter that takes a sequence of integers, which may also be written as several arguments
    """

    name: str
    signatures: tuple[tuple[Parameter, ...], ...]
    kind: str
    random: bool
    variadic: str = ""


@dataclass(frozen=True, slots=True)
class LayerType:
    """A class of `torch.nn`: its constructor, and the operation it computes with the attributes that feed it."""

    init: tuple[Parameter, ...]
    op: str | None
    attributes: tuple[str, ...]


class OpTable:
    """Look-ups in the generated table; one object a process."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._ops: Mapping[str, Any] = data["ops"]
        self.spellings: Mapping[str, str] = data["spellings"]
        self._layers: Mapping[str, Any] = data["layers"]
        self._cache: dict[str, Operation] = {}
        self._layer_cache: dict[str, LayerType] = {}

    def spelled(self, qualified: str) -> str | None:
        """Canonical operation of a qualified name."""
        return self.spellings.get(qualified)

    def method(self, name: str) -> str | None:
        """Canonical operation of a tensor method."""
        return self.spellings.get("torch.Tensor." + name)

    def operation(self, name: str) -> Operation:
        """The operation of a canonical name; KeyError when there is none."""
        if name not in self._cache:
            row = self._ops[name]
            signatures = tuple(_parameters(one) for one in row["signatures"])
            self._cache[name] = Operation(
                name, signatures, row.get("kind", "tensor"), row.get("random", False), row.get("variadic", "")
            )
        return self._cache[name]

    def layers_computing(self, op: str) -> tuple[str, ...]:
        """Layer types whose call is the operation."""
        return tuple(name for name, row in self._layers.items() if row.get("op") == op)

    def layer(self, qualified: str) -> LayerType | None:
        """The layer type of a qualified name such as `torch.nn.Dropout`."""
        if qualified not in self._layers:
            return None
        if qualified not in self._layer_cache:
            row = self._layers[qualified]
            self._layer_cache[qualified] = LayerType(
                _parameters(row["init"]), row.get("op"), tuple(row.get("attributes", ()))
            )
        return self._layer_cache[qualified]


def _parameters(rows: Sequence[Sequence[Any]]) -> tuple[Parameter, ...]:
    return tuple(
        Parameter(row[0], row[1] != "p", len(row) > 2, row[2] if len(row) > 2 else None, row[1] in ("v", "w"))
        for row in rows
    )


def bind(
    signatures: Sequence[tuple[Parameter, ...]], positional: Sequence[T], keywords: Mapping[str, T]
) -> tuple[dict[str, T], tuple[Parameter, ...]] | None:
    """Arguments by parameter name, and the parameters left at their defaults, under the first signature that fits."""
    for signature in signatures:
        places = [parameter for parameter in signature if not parameter.keyword_only]
        rest = any(parameter.rest for parameter in signature)
        if len(positional) > len(places) and not rest:
            continue
        bound = {place.name: value for place, value in zip(places, positional, strict=False)}
        bound.update((str(number), value) for number, value in enumerate(positional) if number >= len(places))
        names = {parameter.name for parameter in signature}
        if any(name in bound or (name not in names and not rest) for name in keywords):
            continue
        bound.update(keywords)
        left = tuple(parameter for parameter in signature if parameter.name not in bound and not parameter.rest)
        if all(parameter.optional for parameter in left):
            return bound, left
    return None


_DTYPES = frozenset(
    [
        "float16",
        "float32",
        "float64",
        "bfloat16",
        "half",
        "float",
        "double",
        "int8",
        "int16",
        "int32",
        "int64",
        "long",
        "int",
        "short",
        "uint8",
        "bool",
    ]
)


def is_dtype(qualified: str) -> bool:
    """True for the name of a data type of PyTorch."""
    return qualified.startswith("torch.") and qualified[6:] in _DTYPES


@functools.cache
def table() -> OpTable:
    """The committed table."""
    return OpTable(json.loads(resources.files("regraft.structure").joinpath("ops_table.json").read_text("utf-8")))
