"""Read shapes that documentation, error messages and unpacking statements state in words, such as
`(batch_size, num_channels, height, width)`."""

from __future__ import annotations

import ast
import contextlib
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from regraft.verification.child.drivers.argument_slots import (
    BATCH,
    LENGTH,
    VARIABLE_DIMENSIONS,
    Dim,
    Sizes,
    Slot,
    dimension_of,
)
from regraft.verification.child.drivers.field_tables import DIMENSION_FIELDS, HIDDEN
from regraft.verification.child.drivers.forward_inputs import (
    AXIS_NAMES,
    KINDS_BY_TENSOR,
    SHAPE_WORDS,
)

_DOCUMENTED = re.compile(
    r"^\s*(\w+)\s*\(`?([\w.]*Tensor)`?,? of shape `?\(([^()]+)\)", re.MULTILINE
)
# the shape of a parameter as a list of axes, at least three of them, in the line of its name
_LISTED = re.compile(
    r"^\s*`?(\w+)`?(?: \([^()]*\))?: [^\n\[(]*[\[(]`?(\w+(?:, ?\w+){2,})`?[\])]", re.MULTILINE
)
AXIS_SIDES = (16, 8)  # the heights and widths of images whose axes an unpacking statement names
AXIS_FRAMES = 4  # the frames of a video
_PICTURE_CHANNELS = 3
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


def listed_slots(function: Any, sizes: Sizes, config: Any) -> dict[str, Slot]:
    """Return by name slots of real numbers of the parameters whose axes the docstring of a function
    lists, as in `video: latents [B, C, T, H, W]` or `x: features (batch, seq, dim)`; {} where it
    lists none. A shape with a name without a meaning is skipped."""
    parameters = inspect.signature(function).parameters
    slots = {}
    for name, shape in _LISTED.findall(inspect.getdoc(function) or ""):
        words = tuple(_split_words(shape))
        if name not in parameters:
            continue
        slot = Slot("normal", (BATCH, LENGTH, dimension_of("hidden", sizes)))
        listed = list(itertools.islice(slots_of_axes(words, slot, config), len(AXIS_SIDES)))
        slots.update({name: listed[-1]} if listed else {})  # with the smallest sides
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


def unpacked_shape(statement: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the variable whose shape a statement such as `b, c, h, w = x.shape` unpacks, and the
    names that it unpacks the shape to; None for any other statement."""
    names, value = unpacking(statement) or ((), None)
    value = value.func if isinstance(value, ast.Call) else value
    if not isinstance(value, ast.Attribute) or value.attr not in ("shape", "size"):
        return None
    return (value.value.id, names) if isinstance(value.value, ast.Name) else None


def unpacking(statement: str) -> tuple[tuple[str, ...], ast.expr] | None:
    """Return the names that a statement such as `h, c = state` unpacks a value to, "_" for a target
    that is no name, and the value; None for any other statement."""
    node = next(iter(parsed_statement(statement).body), None)
    if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)):
        return None
    names = tuple(getattr(target, "id", "_") for target in node.targets[0].elts)
    return names, node.value


def parsed_statement(statement: str) -> ast.Module:
    """Return the syntax tree of a statement, of a compound one without its body; an empty module
    where its text does not parse by itself."""
    text = textwrap.dedent(statement).strip()
    for complete_text in (text, f"{text} pass"):
        with contextlib.suppress(SyntaxError):
            return ast.parse(complete_text)
    return ast.Module([], [])


def slots_of_axes(
    names: tuple[str, ...], slot: Slot, config: Any, *, pictures: bool = False
) -> Iterator[Slot]:
    """Yield the slot with a dimension for each name of an axis, such as `b`, `c`, `h` and `w`, or
    a number; nothing where a name has no meaning.

    The first axis is the batch, or the length where its name says so; a last one that is called `_`
    is the channels. Channels are those of the configuration; where it states none, the slot's last
    fixed dimension, then the three of a picture, or with `pictures` these first. Of an image both
    sides are one of `AXIS_SIDES`, large ones first, and a video has `AXIS_FRAMES` frames.
    """
    is_image = any(re.search(AXIS_NAMES["side"], name) for name in names)
    first = "length" if re.search("len|seq|tokens", names[0]) else "batch"
    meanings = [first, *(_meaning_of_axis(name, is_image) for name in names[1:])]
    if len(names) > 1 and names[-1] == "_":
        meanings[-1] = "channels"
    if None in meanings:
        return
    width = next((dim.factor for dim in reversed(slot.dims) if not dim.of), HIDDEN)
    stated = Sizes(config).get(DIMENSION_FIELDS["channels"][0], 0)
    usual_numbers = (_PICTURE_CHANNELS, width) if pictures else (width, _PICTURE_CHANNELS)
    channel_numbers = (stated,) if stated else usual_numbers
    choices = itertools.product(channel_numbers, AXIS_SIDES) if is_image else [(width, 1)]
    for channels, side in choices:
        sizes = {"channels": channels, "side": side, "frames": AXIS_FRAMES}
        dims = (_dimension_of_axis(str(meaning), sizes) for meaning in meanings)
        yield replace(slot, dims=tuple(dims))


def _dimension_of_axis(meaning: str, sizes: Mapping[str, int]) -> Dim:
    """Return the dimension of an axis by its meaning, a number as it is; `sizes` are those that do
    not depend on the call."""
    number = int(meaning) if meaning.isdigit() else sizes.get(meaning, 0)
    return VARIABLE_DIMENSIONS.get(meaning) or Dim(number)


def _meaning_of_axis(name: str, is_image: bool) -> str | None:
    """Return the key of `AXIS_NAMES` for the name of an axis, a number as it is, None where the
    name tells nothing; the frames of a shape that is no image (`is_image`) are positions."""
    if name.isdigit():
        return name
    meaning = next((key for key, names in AXIS_NAMES.items() if re.search(names, name)), None)
    return "length" if meaning == "frames" and not is_image else meaning


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
