"""The canonical operations of PyTorch: spellings, signatures and layers, from the generated
`ops_table.json`."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

OPERATORS = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    "@": "matmul",
    "**": "pow",
    "neg": "neg",
}
# Pairs of parameters that may change places.
INTERCHANGEABLE = {
    "add": ("input", "other"),
    "mul": ("input", "other"),
    "transpose": ("dim0", "dim1"),
}
# Operations that are `pow` with a constant exponent.
POWERS = {"square": 2}
# Constant exponents with which `pow` is another operation.
ROOTS = {0.5: "sqrt", -0.5: "rsqrt"}
# Operations whose result is a tuple of tensors.
SPLITTING_OPS = frozenset({"split", "chunk", "unbind"})
# Operations that write into the buffers of their layer.
STATEFUL_OPS = frozenset({"batch_norm", "fused_moving_avg_obs_fake_quant"})
# Arguments by which an operation writes into a tensor, unless they are None.
WRITING_ARGUMENTS = ("out", "max_norm", "running_mean", "running_var")
# Operations that give their input another shape in place.
RESHAPING_OPS = frozenset(
    {
        "as_strided_",
        "resize_",
        "resize_as_",
        "resize_as_sparse_",
        "set_",
        "sparse_resize_",
        "sparse_resize_and_clear_",
        "squeeze_",
        "swapaxes_",
        "swapdims_",
        "t_",
        "transpose_",
        "unsqueeze_",
    }
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a signature; `default` counts only if `optional`; `starred` marks `*args`
    and `**kwargs`."""

    name: str
    keyword_only: bool
    optional: bool
    default: object = None
    starred: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """A canonical operation.

    signatures  the possible signatures, longest first
    kind        the kind of the result (`tensor`, `int`, ...)
    random      the operation draws random numbers
    variadic    the parameter that takes a sequence of integers or, in its place, several integers;
                "" for none
    """

    name: str
    signatures: tuple[tuple[Parameter, ...], ...]
    kind: str
    random: bool
    variadic: str = ""


@dataclass(frozen=True, slots=True)
class LayerType:
    """A class of `torch.nn`.

    init        the parameters of the constructor
    op          the canonical operation that a call computes, None when there is none
    attributes  the attributes of the layer that are arguments of the operation
    several     a call takes every parameter of the operation, by position or by keyword; else the
                inputs alone, by position
    """

    init: tuple[Parameter, ...]
    op: str | None
    attributes: tuple[str, ...]
    several: bool = False


class OpTable:
    """Look-ups in the generated table, with one object per process."""

    def __init__(self, tables: Mapping[str, Any]) -> None:
        self._ops: Mapping[str, Any] = tables["ops"]
        self.spellings: Mapping[str, str] = tables["spellings"]
        self._layers: Mapping[str, Any] = tables["layers"]
        self._cache: dict[str, Operation] = {}
        self._layer_cache: dict[str, LayerType] = {}

    def canonical_op(self, qualified: str) -> str | None:
        """Return the canonical operation of a qualified name; None when unknown."""
        return self.spellings.get(qualified)

    def method(self, name: str) -> str | None:
        """Return the canonical operation of a tensor method; None when unknown."""
        return self.spellings.get("torch.Tensor." + name)

    def operation(self, name: str) -> Operation:
        """Return the operation of a canonical name; raise KeyError when there is none."""
        if name not in self._cache:
            row = self._ops[name]
            signatures = tuple(_parameters(rows) for rows in row["signatures"])
            self._cache[name] = Operation(
                name,
                signatures,
                row.get("kind", "tensor"),
                row.get("random", False),
                row.get("variadic", ""),
            )
        return self._cache[name]

    def layers_computing(self, op: str) -> tuple[str, ...]:
        """Return the layer types whose call computes an operation."""
        return tuple(name for name, row in self._layers.items() if row.get("op") == op)

    def layer(self, qualified: str) -> LayerType | None:
        """Return the layer type of a qualified name such as `torch.nn.Dropout`; None if unknown."""
        if qualified not in self._layers:
            return None
        if qualified not in self._layer_cache:
            row = self._layers[qualified]
            self._layer_cache[qualified] = LayerType(
                _parameters(row["init"]),
                row.get("op"),
                tuple(row.get("attributes", ())),
                row.get("several", False),
            )
        return self._layer_cache[qualified]


def _parameters(rows: Sequence[Sequence[Any]]) -> tuple[Parameter, ...]:
    """Return the parameters of a signature from rows (name, kind) or (name, kind, default)."""
    return tuple(
        Parameter(
            row[0],
            row[1] != "p",
            len(row) > 2,
            row[2] if len(row) > 2 else None,
            row[1] in ("v", "w"),
        )
        for row in rows
    )


def bind(
    signatures: Sequence[tuple[Parameter, ...]], positional: Sequence[T], keywords: Mapping[str, T]
) -> tuple[dict[str, T], tuple[Parameter, ...]] | None:
    """Return arguments by parameter name, and the omitted parameters, for the first signature that
    fits.

    The result is None when no signature fits.
    """
    for signature in signatures:
        bound = _arguments_by_name(signature, positional, keywords)
        if bound is None:
            continue
        omitted = tuple(
            parameter
            for parameter in signature
            if parameter.name not in bound and not parameter.starred
        )
        if all(parameter.optional for parameter in omitted):
            return bound, omitted
    return None


def _arguments_by_name(
    signature: tuple[Parameter, ...], positional: Sequence[T], keywords: Mapping[str, T]
) -> dict[str, T] | None:
    """Return the arguments of a call by parameter name; None when the signature does not take them.

    Positional arguments that `*args` takes have their numbers as names.
    """
    places = [parameter.name for parameter in signature if not parameter.keyword_only]
    has_starred = any(parameter.starred for parameter in signature)
    if len(positional) > len(places) and not has_starred:
        return None
    bound = dict(zip(places, positional, strict=False))
    for number in range(len(places), len(positional)):
        bound[str(number)] = positional[number]
    names = {parameter.name for parameter in signature}
    for name in keywords:
        if name in bound or (name not in names and not has_starred):
            return None
    bound.update(keywords)
    return bound


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
    """Return whether a qualified name is that of a data type of PyTorch."""
    return qualified.startswith("torch.") and qualified[6:] in _DTYPES


@functools.cache
def table() -> OpTable:
    """Return the table of the package's `ops_table.json`."""
    return OpTable(json.loads(Path(__file__).with_name("ops_table.json").read_bytes()))
