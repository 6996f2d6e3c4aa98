"""Make the values of the arguments that slots describe, and calls from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from regraft.verification.child.call_arguments import Call, array_of
from regraft.verification.child.drivers.argument_slots import BUILT, GRID, Slot, Spec

Shape = tuple[int, ...]
_LARGEST_MAP = 16  # the side of the first of several feature maps


def make_call(spec: Spec, size: tuple[int, int], seed: int) -> Call:
    """Return the call that a specification describes at one size, (batch, length), with all
    arguments as keywords. Random numbers depend on the seed, the batch and the order of the
    slots."""
    generator = torch.Generator().manual_seed(1000 * seed + size[0])
    values = {
        name: _make_value(slot, size, generator)
        for name, slot in spec.items()
        if slot.kind not in BUILT
    }
    for name, slot in spec.items():
        if slot.kind in BUILT:
            values = _with_object(values, name, spec)
    return Call((), values, f"batch {size[0]}, length {size[1]}")


def _with_object(values: Mapping[str, Any], name: str, spec: Spec) -> dict[str, Any]:
    """Return values with the object, or the list of objects, that the slot under a name describes,
    built from the values under the names that begin with this name and a dot, which are left out.
    Each object of a list is one position shorter than the one before it."""
    slot, prefix = spec[name], f"{name}."
    arguments = {
        key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)
    }
    own_values = {key: value for key, value in values.items() if not key.startswith(prefix)}
    if slot.kind == "object":
        return {**own_values, name: slot.value(**arguments)}
    rows = range(min(len(argument) for argument in arguments.values()))
    objects = [
        slot.value(
            **{
                key: _shortened(argument[row], spec[f"{prefix}{key}"], row)
                for key, argument in arguments.items()
            }
        )
        for row in rows
    ]
    return {**own_values, name: objects}


def _shortened(row: Any, slot: Slot, count: int) -> Any:
    """Return a row of a tensor without its last `count` positions, but with one at least, where its
    first dimension depends on the length; any other row as it is."""
    has_length = len(slot.dims) > 1 and slot.dims[1].of == "length"
    return row[: max(1, len(row) - count)] if has_length else row


def _make_value(slot: Slot, size: tuple[int, int], generator: Any) -> Any:
    """Return the value that a slot describes at one size; zeros for a kind that is not in
    `_MAKERS`, such as "additive"."""
    shape = tuple(dim.at(size) for dim in slot.dims)
    make_kind = _MAKERS.get(slot.kind)
    value = torch.zeros(shape) if make_kind is None else make_kind(slot, shape, generator)
    return array_of(value) if slot.is_array else value


# The functions `_make_KIND(slot, shape, generator)` make the values of one kind; the generator is
# the source of their random numbers.


def _make_ids(slot: Slot, shape: Shape, generator: Any) -> Any:
    """Return random token ids; tokens that have places occur in these places only, at the start of
    each row."""
    lowest = min(slot.lowest, slot.limit - 1)
    ids = torch.randint(lowest, slot.limit, shape, generator=generator)
    for token, _ in slot.places:
        ids = ids.masked_fill(ids == token, 0)
    return _write_runs(ids, slot.places)


def _make_marks(slot: Slot, shape: Shape, _: Any) -> Any:
    """Return integers: at the positions of each of the slot's places the number of the place, from
    1 on, and 0 elsewhere."""
    runs = [(number + 1, count) for number, (_, count) in enumerate(slot.places)]
    return _write_runs(torch.zeros(shape, dtype=torch.long), runs)


def _make_boxes(_: Slot, shape: Shape, generator: Any) -> Any:
    """Return the upper left and lower right corners of boxes, integers from 0 to 58; the last
    dimension is 4, whatever the shape says."""
    corners = torch.randint(0, 30, (*shape[:-1], 2), generator=generator)
    sides = torch.randint(1, 30, (*shape[:-1], 2), generator=generator)
    return torch.cat([corners, corners + sides], -1)


def _make_corners(slot: Slot, shape: Shape, generator: Any) -> Any:
    """Return boxes as real numbers, below 8."""
    return _make_boxes(slot, shape, generator) * 0.13


def _make_patches(_: Slot, shape: Shape, generator: Any) -> Any:
    """Return random patches, each after its row and its column in an image of four columns; the
    last dimension is 2 larger than the shape says."""
    positions = torch.arange(shape[1]).expand(shape[:2])
    places = torch.stack([positions // 4, positions % 4], -1).float()
    return torch.cat([places, torch.randn(shape, generator=generator)], -1)


def _make_pair(_: Slot, shape: Shape, generator: Any) -> Any:
    """Return two tensors of random numbers, each of the shape."""
    return torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)


def _make_rotation(_: Slot, shape: Shape, generator: Any) -> Any:
    """Return complex numbers of length 1, half as many in the last dimension as the shape says."""
    angles = torch.randn(*shape[:-1], shape[-1] // 2, generator=generator)
    return torch.polar(torch.ones_like(angles), angles)


def _make_list(slot: Slot, shape: Shape, generator: Any) -> Any:
    """Return a list of tensors of random numbers, each of the shape."""
    return [torch.randn(shape, generator=generator) for _ in range(slot.value)]


def _make_maps(slot: Slot, shape: Shape, generator: Any) -> Any:
    """Return a list of random feature maps for a batch, (batch, channels, side, side): of
    `_LARGEST_MAP` pixels, then of half of them, and so on."""
    return [
        torch.randn(*shape, channels, side, side, generator=generator)
        for level, channels in enumerate(slot.value)
        for side in [max(1, _LARGEST_MAP >> level)]
    ]


def _make_lengths(_: Slot, shape: Shape, generator: Any) -> Any:
    """Return the numbers of positions of all rows: all of them in the first, random ones, from 1
    on, in the others."""
    *rows, longest = shape or (1,)
    lengths = torch.randint(1, longest + 1, rows, generator=generator)
    lengths.view(-1)[:1] = longest
    return lengths


def _make_grid(_: Slot, shape: Shape, __: Any) -> Any:
    """Return a row for each image with its number of rows and of columns of patches, `GRID` both,
    after its number of frames, 1, where the row has three elements."""
    return torch.tensor([1, GRID, GRID][-shape[1] :]).repeat(shape[0], 1)


def _make_padding(_: Slot, shape: Shape, __: Any) -> Any:
    """Return a mask that is true at padding: at the last quarter of the positions, or at least one,
    of all rows but the first, where there is more than one position."""
    mask = torch.zeros(shape, dtype=torch.bool)
    if shape[-1] > 1:
        mask[1:, ..., -max(1, shape[-1] // 4) :] = True
    return mask


def _make_mask(_: Slot, shape: Shape, __: Any) -> Any:
    """Return a mask of ones, with two zeros at the end of the second row where there are two rows
    and more than two positions."""
    mask = torch.ones(shape, dtype=torch.long)
    if shape[0] > 1 and len(shape) > 1 and shape[-1] > 2:
        mask[1, ..., -2:] = 0
    return mask


# The function that makes the values of a kind; those of all others are zeros.
_MAKERS: Mapping[str, Callable[[Slot, Shape, Any], Any]] = {
    "plain": lambda slot, _, __: slot.value,
    "normal": lambda _, shape, generator: torch.randn(shape, generator=generator),
    "ids": _make_ids,
    "marks": _make_marks,
    "mask": _make_mask,
    "padding": _make_padding,
    "boxes": _make_boxes,
    "corners": _make_corners,
    "bool": lambda _, shape, generator: torch.rand(shape, generator=generator) < 0.5,
    "patches": _make_patches,
    "every other": lambda _, shape, __: (torch.arange(shape[-1]) % 2 == 0).expand(shape).clone(),
    "pair": _make_pair,
    "rotation": _make_rotation,
    "bounds": lambda _, shape, __: torch.tensor([0, shape[0]], dtype=torch.int32),
    "grid": _make_grid,
    "lengths": _make_lengths,
    "maps": _make_maps,
    "list": _make_list,
    "edges": lambda _, shape, generator: torch.randint(0, shape[-1], shape, generator=generator),
    "range": lambda _, shape, __: torch.arange(shape[-1]).expand(shape).clone(),
    "ones": lambda _, shape, __: torch.ones(shape),
}


def _write_runs(tensor: Any, runs: Sequence[tuple[int, int]]) -> Any:
    """Write runs, pairs of a value and a count, into a tensor in place, one after the other from
    the start of the last dimension on, in every row; return the tensor."""
    start = 0
    for value, count in runs:
        tensor[..., start : start + count] = value
        start += count
    return tensor
