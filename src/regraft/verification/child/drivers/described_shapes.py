"""Read shapes that documentation and error messages state in words, such as `(batch_size,
num_channels, height, width)`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from regraft.verification.child.drivers.forward_inputs import KINDS_BY_TENSOR, SHAPE_WORDS
from regraft.verification.child.drivers.slots import (
    BATCH,
    LENGTH,
    VARIABLE_DIMENSIONS,
    Dim,
    Sizes,
    Slot,
    dimension_of,
)

_DOCUMENTED = re.compile(
    r"^\s*(\w+)\s*\(`?([\w.]*Tensor)`?,? of shape `?\(([^()]+)\)", re.MULTILINE
)
SHAPE = r"shape\W*\((\w+,[\w ,]*)\)"  # a shape in words


def documented_slots(function: Any, sizes: Sizes) -> dict[str, Slot]:
    """Return by name slots of the parameters whose shape the docstring of a function states, as in
    `x (torch.LongTensor of shape (batch_size,))`; {} where it states none.

    A shape with a word that has no meaning is skipped. Integers are below 2, since the docstring
    does not state their range.
    """
    slots = {}
    for name, kind, shape in _DOCUMENTED.findall(inspect.getdoc(function) or ""):
        dims = [
            dim
            for word in _split_words(shape)
            if (dim := _dimension_of_word(word, sizes)) is not None
        ]
        if len(dims) == len(_split_words(shape)):
            tensor_type = kind.rpartition(".")[2]
            slots[name] = Slot(KINDS_BY_TENSOR.get(tensor_type, "normal"), tuple(dims), 2)
    return slots


def slots_from_message(text: str, slot: Slot) -> Iterator[Slot]:
    """Yield the slot with each shape that an error message states in words; shapes in numbers only
    are skipped.

    A word without a fixed meaning stands for the next of the slot's dimensions that are neither
    batch nor length; a shape with more such words than dimensions is skipped.
    """
    for shape in re.findall(SHAPE, text):
        words = _split_words(shape)
        fixed_dims = iter([dim for dim in slot.dims if dim not in (BATCH, LENGTH)])
        dims = [
            dim
            for word in words
            if (dim := _dimension_of_word(word) or next(fixed_dims, None)) is not None
        ]
        if len(dims) == len(words) and not all(word.isdigit() for word in words):
            yield replace(slot, dims=tuple(dims))


def _split_words(shape: str) -> list[str]:
    """Return the words of a shape, which are separated by commas, without empty ones."""
    return [word.strip() for word in shape.split(",") if word.strip()]


def _dimension_of_word(word: str, sizes: Sizes | None = None) -> Dim | None:
    """Return the dimension that a word stands for, a number or a word of `SHAPE_WORDS`; None for a
    word without a meaning and, without `sizes`, for one whose size a configuration states."""
    if word.isdigit():
        return Dim(int(word))
    meaning = next((name for pattern, name in SHAPE_WORDS if re.search(pattern, word)), None)
    if meaning is None or (sizes is None and meaning not in VARIABLE_DIMENSIONS):
        return None
    return VARIABLE_DIMENSIONS[meaning] if sizes is None else dimension_of(meaning, sizes)
