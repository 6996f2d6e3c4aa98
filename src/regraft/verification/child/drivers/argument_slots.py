"""Describe the value of each argument of a call by a slot, whose shape follows from the batch size
and the length; guess slots from names."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from regraft.verification.child.drivers.field_tables import (
    DIMENSION_FIELDS,
    LAGS_FIELD,
    STRIDE,
    STRIDES_FIELD,
)
from regraft.verification.child.drivers.forward_inputs import (
    DIMENSION_INPUT,
    INPUTS,
    INPUTS_BY_ANNOTATION,
    LAST_DIMENSION,
    LAYER_MASK,
    PLAIN_INPUTS,
    PLAIN_TYPES,
    TYPE_INPUTS,
    UNNAMED_INPUT,
    VIDEO_INPUTS,
    Dimensions,
)
from regraft.verification.child.drivers.guessed_values import value_for


class Dim(NamedTuple):
    """A dimension: `factor` times a size of the call, plus `extra`.

    `of` names that size: "batch", "length", or "positions", which is their product; for "", a fixed
    dimension, `factor` is its size.
    """

    factor: int
    of: str = ""
    extra: int = 0

    def at(self, size: tuple[int, int]) -> int:
        """Return the number of elements along the dimension at a size, (batch, length)."""
        batch, length = size
        numbers = {"": 1, "batch": batch, "length": length, "positions": batch * length}
        return self.factor * numbers[self.of] + self.extra


BATCH, LENGTH, POSITIONS = Dim(1, "batch"), Dim(1, "length"), Dim(1, "positions")
VARIABLE_DIMENSIONS: Mapping[str, Dim] = {"batch": BATCH, "length": LENGTH}
# by type without `torch.`; of no generator random numbers are those of the seed
_VALUES_BY_TYPE = {"dtype": torch.float32, "device": torch.device("cpu"), "Generator": None}
_FIRST_WORD = 3  # the first token id for a word; smaller ones are often special tokens
BUILT = frozenset({"object", "rows"})  # the kinds of slots whose values are built from others
NO_TENSORS = BUILT | {"plain"}  # the kinds of slots that hold no tensor
GRID = 4  # the rows, and the columns, of an image's patches where a model takes a grid


@dataclass(frozen=True, slots=True)
class Slot:
    """The description of one argument: a tensor of `dims`, or the `value` of a plain one.
    `is_array` is true for an array of NumPy in the place of the tensor.

    `kind` is one of these; of any other kind the tensor is zeros.

    * plain: `value` itself, which is no tensor
    * normal: random real numbers
    * ids: random integers from `lowest` on and below `limit`; each row starts with the tokens of
      `places`, which are pairs of a token and the number of its positions
    * marks: 1 at the positions of the first of the `places`, 2 at those of the next, 0 elsewhere
    * mask: integers 1, with zeros at the end of the second row
    * additive, zeros, ones: a mask that is added to scores, which is 0; zeros; ones
    * bool, every other: random booleans; true, false, true, ... in the last dimension
    * range: 0, 1, 2, ... in the last dimension
    * boxes: corners in the last dimension, whole numbers
    * corners: as boxes, real numbers
    * patches: as normal, after a row and a column in the last dimension
    * pair: a tuple of two like normal, keys and values
    * rotation: complex numbers of length 1, half as many in the last dimension
    * maps: a list of feature maps with the channels in `value`, each of half the side of the one
      before
    * list: as many tensors of real numbers of the shape as `value` says
    * grid: rows and columns of patches for each image, frames before them where there are three
    * bounds: begin and end of the only sequence of a row
    * lengths: for dimensions (batch, length) a number of positions for each row, from 1 to all; the
      first row has all
    * object: an object of the class in `value`; the arguments of its constructor have slots of
      their own, under the name of the parameter, a dot and their names
    * rows: a list of such objects, one for each row of the batch, which gets the row of each
      argument, shorter from row to row
    * padding: false, but true in the last quarter of the last dimension of all rows but the first
    * edges: two rows of numbers below the last dimension, the nodes from and to which edges go
    """

    kind: str
    dims: tuple[Dim, ...] = ()
    limit: int = 0
    value: Any = None
    places: tuple[tuple[int, int], ...] = ()
    lowest: int = _FIRST_WORD
    is_array: bool = False


Spec = Mapping[str, Slot]  # a slot for each argument, by the name of the parameter


class Sizes:
    """Looks sizes up in a configuration (None for none) and those nested in it, then in the
    attributes of a layer.

    `hidden` is the width of a layer's inputs, which is used in place of the configuration's; 0 for
    a model.
    """

    def __init__(self, config: Any, hidden: int = 0, layer: Any = None) -> None:
        """Store the configuration and the configurations in its fields, sorted by name, and the
        layer, None for none."""
        self.hidden = hidden
        fields = getattr(config, "__dict__", {})
        nested = [value for key, value in sorted(fields.items()) if _is_config(key, value)]
        self._places = [config, *nested, layer]

    def get(self, names: tuple[str, ...], default: int) -> int:
        """Return the first integer under one of the names, in the configuration or else in a nested
        one; of a list, its first element. `default` is returned where there is none."""
        for place in self._places:
            for name in names:
                value = getattr(place, name, None)
                value = value[0] if isinstance(value, list | tuple) and value else value
                if isinstance(value, int) and not isinstance(value, bool):
                    return value
        return default

    def of(self, dimension: str) -> int:
        """Return the size of a dimension by its name in `DIMENSION_FIELDS` or `_COMPUTED`, a
        default where the configuration does not state it; for "hidden" the width of the layer if
        there is one. Raises KeyError for a name in neither table."""
        if dimension in _COMPUTED:
            return _COMPUTED[dimension](self)
        if dimension == "hidden" and self.hidden:
            return self.hidden
        names, default = DIMENSION_FIELDS[dimension]
        return self.get(names, default if isinstance(default, int) else self.of(default))

    def numbers_in_list(self, name: str) -> tuple[int, ...]:
        """Return the elements of the list or tuple in a field of the configuration itself, without
        nested ones; () where the field has no list."""
        values = getattr(self._places[0], name, None)
        return tuple(values) if isinstance(values, list | tuple) else ()


# The sizes that are computed from several fields.
_COMPUTED: Mapping[str, Callable[[Sizes], int]] = {
    "hidden by heads": lambda sizes: sizes.of("hidden") // sizes.of("heads"),
    "past": lambda sizes: (
        sizes.of("context positions") + max(sizes.numbers_in_list(LAGS_FIELD), default=0)
    ),
    "frames": lambda sizes: 2 * sizes.of("source positions"),
}


def _is_config(name: str, value: Any) -> bool:
    """Return whether a field is a configuration inside another, by its name or a `to_dict`."""
    return value is not None and (name.endswith("config") or hasattr(value, "to_dict"))


def with_places(spec: Spec, token: int, count: int) -> Spec:
    """Return inputs in which `count` positions of each row hold a token that stands for something
    else, such as an image, beside the tokens that have places already.

    All dimensions that depend on the length get longer by as many positions as the token had fewer
    before; slots with places, such as token types, get the new places, too. Raises KeyError for
    inputs without `input_ids`.
    """
    counts = dict(spec["input_ids"].places)
    places, added = tuple({**counts, token: count}.items()), count - counts.get(token, 0)

    def lengthen(slot: Slot) -> Slot:
        """Return a slot with longer lengths, and with the new places if it has any."""
        dims = (
            dim._replace(extra=dim.extra + added) if dim.of == "length" else dim
            for dim in slot.dims
        )
        return replace(slot, dims=tuple(dims), places=places if slot.places else ())

    lengthened = {name: lengthen(slot) for name, slot in spec.items()}
    return {**lengthened, "input_ids": replace(lengthened["input_ids"], places=places)}


def slot_for(name: str, annotation: str, sizes: Sizes, inner: bool = False) -> Slot:
    """Return the first guess for a parameter: by its name, unless it is annotated as a whole
    number, else by its annotation, else real numbers of (batch, length, hidden), or a value for a
    parameter that is no tensor.

    `annotation` is the text that `annotation_text` returns; `inner` is for parameters of a
    layer, whose masks are added to scores. Raises LookupError where no plain value can be guessed.
    """
    for pattern, kind, dims in INPUTS:
        if annotation != "int" and re.search(pattern, name):
            return _slot_by_name(name, kind, dims, sizes, inner)
    for mark, kind, limit in INPUTS_BY_ANNOTATION:
        if mark in annotation:
            return Slot(kind, (BATCH, LENGTH), limit)
    if annotation.rpartition(".")[2] == "Module":
        # a function reads its attributes; errors name missing ones
        return Slot("plain", value=SimpleNamespace(training=False))
    if _type_name(annotation) in _VALUES_BY_TYPE:
        return Slot("plain", value=_VALUES_BY_TYPE[_type_name(annotation)])
    if not is_plain(name, annotation):
        return Slot("normal", _all_dimensions(UNNAMED_INPUT, sizes))
    is_dimension = name == DIMENSION_INPUT
    value = LAST_DIMENSION if is_dimension else value_for(name, _type_name(annotation))
    return Slot("plain", value=value)


def _slot_by_name(name: str, kind: str, dims: Dimensions, sizes: Sizes, inner: bool) -> Slot:
    """Return the slot of a parameter from its row of `INPUTS`; the masks of a layer (`inner`) are
    additive, and images become videos where the configuration has frames."""
    if kind == "mask" and inner:
        return Slot("additive", _all_dimensions(LAYER_MASK, sizes))
    frames = sizes.of("video frames")
    is_video = frames and name in VIDEO_INPUTS
    shape = ("batch", frames, *dims[1:]) if is_video else dims
    lowest = 0 if name in TYPE_INPUTS else _FIRST_WORD
    return Slot(kind, _all_dimensions(shape, sizes), _limit(name, sizes), lowest=lowest)


def packed_patches(sizes: Sizes) -> Slot:
    """Return the slot of the patches of all images in one tensor, (patches of the batch, elements
    of a patch), for models that also take a grid of `GRID` by `GRID` patches."""
    frames, side = sizes.of("packed frames"), sizes.of("packed side")
    numbers = sizes.of("packed channels") * frames * side * side
    return Slot("normal", (Dim(GRID * GRID, "batch"), Dim(numbers)))


def annotation_text(parameter: inspect.Parameter) -> str:
    """Return the annotation of a parameter as text, without spaces, an `Optional` around it and
    `| None`; for a class itself its name without the module, and "_empty" for no annotation."""
    note = parameter.annotation
    text = note if isinstance(note, str) else getattr(note, "__name__", "") or str(note)
    text = str(note) if text == "Optional" else text
    return re.sub(r"^(typing\.)?Optional\[(.*)\]$", r"\2", text.replace(" ", "")).replace(
        "|None", ""
    )


def is_plain(name: str, annotation: str) -> bool:
    """Return whether a parameter is no tensor, by its annotation, or by its name where it is not
    annotated as a tensor."""
    type_name = _type_name(annotation)
    if type_name.endswith("Tensor"):
        return False
    return type_name in PLAIN_TYPES or type_name in _VALUES_BY_TYPE or name in PLAIN_INPUTS


def _type_name(annotation: str) -> str:
    """Return the name of the annotated type, without a `torch.` or `torch._C.` before and a `|None`
    after it."""
    return annotation.removesuffix("|None").removeprefix("torch.").removeprefix("_C.")


def is_named(name: str) -> bool:
    """Return whether a parameter's name tells its contents, by a row of `INPUTS`."""
    return any(re.search(pattern, name) for pattern, _, _ in INPUTS)


def dimension_of(dim: str | int, sizes: Sizes) -> Dim:
    """Return the dimension that has a name of the tables, with its size from the configuration; a
    number is a fixed dimension. Raises KeyError for an unknown name."""
    if isinstance(dim, int):
        return Dim(dim)
    if dim in VARIABLE_DIMENSIONS:
        return VARIABLE_DIMENSIONS[dim]
    if dim == "samples":
        # of sound: four steps for each unit of length after the strides of the convolutions
        return Dim(4 * math.prod(sizes.numbers_in_list(STRIDES_FIELD) or (STRIDE,)), "length")
    return Dim(sizes.of(dim))


def _all_dimensions(dims: Dimensions, sizes: Sizes) -> tuple[Dim, ...]:
    """Return the dimensions that have names of the tables, in the order of the names."""
    return tuple(dimension_of(dim, sizes) for dim in dims)


def _limit(name: str, sizes: Sizes) -> int:
    """Return the number that ids stay below: for types of tokens their number, at least 1, for
    others the vocabulary without its last twelve, which may be special tokens
    (`config_shrinking`)."""
    if name in TYPE_INPUTS:
        return max(1, sizes.of("token types"))
    vocabulary = sizes.of("vocabulary")
    return max(min(4, vocabulary), vocabulary - 12)
