"""Two worlds: the example, and one in which every size that data, loops or inputs decide is larger.

A value that differs between the worlds depends on a size; it stays open in regions and is computed
by the host.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

GROWTH = 5  # additional elements in the second world

aten = torch.ops.aten


def lengthen(tensor: torch.Tensor, dims: Iterable[int]) -> torch.Tensor:
    """Return the tensor with `GROWTH` more elements in each of these dimensions: its last elements
    are repeated, so that they are valid; a dimension without elements gets zeros."""
    for dim in dims:
        size = tensor.shape[dim]
        if size:
            tensor = tensor.index_select(dim, torch.arange(size + GROWTH).clamp(max=size - 1))
        else:
            tensor = tensor.new_zeros([*tensor.shape[:dim], GROWTH, *tensor.shape[dim + 1 :]])
    return tensor


def sized_by_data(func: Any, args: Any) -> bool:
    """Return whether the values of tensors, not only their sizes, decide the shape of the result of
    the operation `func`, as with `nonzero`; with an index, whether one is a mask."""
    if torch.Tag.dynamic_output_shape not in func.tags:
        return False
    return func is not aten.index.Tensor or any(is_mask(index) for index in args[1])


def has_least_size(func: Any, args: Any, result: Any) -> bool:
    """Return whether the result of an operation has the least size which its arguments allow, where
    larger values would make it longer: `bincount` with a `minlength` that no value reaches."""
    least = args[2] if len(args) > 2 else 0
    return func is aten.bincount.default and 0 < least == len(result)


def is_mask(index: torch.Tensor | None) -> bool:
    """Return whether an index is a mask, of truth values or of uint8."""
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def first_shape(result: Any) -> torch.Size:
    """Return the shape of the result, or of the first of several tensors."""
    return (result if isinstance(result, torch.Tensor) else result[0]).shape


class Longer(TorchDispatchMode):  # type: ignore[misc]
    """A mode in which each result whose size the data decide has more elements than in the example.

    shapes: the shapes of these results in the example, in turn. A size that differs from the
    example by itself, because the data do, stays as it is. keeps_least_sizes: whether a result
    stays as it is that has the least size which its arguments allow.
    """

    def __init__(self, shapes: Iterable[torch.Size], keeps_least_sizes: bool = False) -> None:
        super().__init__()
        self.shapes = iter(shapes)
        self.keeps_least_sizes = keeps_least_sizes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and return its result, with `GROWTH` more rows where the data decide its
        size and that is the same as in the example. An assignment by a mask gets the mask's places
        instead."""
        kwargs = kwargs or {}
        if func in (aten.index_put.default, aten.index_put_.default) and any(map(is_mask, args[1])):
            return func(args[0], places_for_values(args[1], args[2]), *args[2:], **kwargs)
        result = func(*args, **kwargs)
        if not sized_by_data(func, args) or first_shape(result) != next(
            self.shapes, first_shape(result)
        ):
            return result
        if self.keeps_least_sizes and has_least_size(func, args, result):
            return result
        if func is aten.index.Tensor:
            return func(args[0], replace_masks(args[1], GROWTH), **kwargs)
        if isinstance(result, torch.Tensor):
            return lengthen(result, [0])
        values, inverse, counts = result  # of torch.unique
        return lengthen(values, [0]), inverse, lengthen(counts, [0]) if counts.numel() else counts


def places_for_values(indices_or_masks: Any, values: torch.Tensor) -> list[torch.Tensor | None]:
    """Return the indices of `tensor[indices_or_masks] = values` with the places of each mask
    instead of it, as many as there are values: more than the mask has where the values come from
    the second world."""
    places = replace_masks(indices_or_masks, 0)
    place_count = next(len(index) for index in places if index is not None)
    fits = values.ndim == 0 or values.shape[0] in (1, place_count)
    return places if fits else replace_masks(indices_or_masks, GROWTH)


def replace_masks(indices_or_masks: Any, growth: int) -> list[torch.Tensor | None]:
    """Return the indices with each mask replaced by the positions where it is true, an index tensor
    for each of its dimensions; None and other indices stay.

    growth: 0 for these positions only; for any other number the last one is repeated `GROWTH`
    times, of a mask that is expanded along its last dimensions the last row.
    """
    places: list[torch.Tensor | None] = []
    for index in indices_or_masks:
        mask_places = index.nonzero() if is_mask(index) else None
        if index is None or mask_places is None:
            places.append(index)
            continue
        rows = mask_places.reshape(-1, expanded_size(index), index.ndim)
        places.extend((lengthen(rows, [0]) if growth else rows).flatten(0, 1).unbind(1))
    return places


def expanded_size(mask: torch.Tensor) -> int:
    """Return the number of elements along the last dimensions of a mask that are equal because the
    mask is expanded there; 1 where it is not."""
    count = 1
    for size, stride in zip(reversed(mask.shape), reversed(mask.stride()), strict=True):
        if stride != 0:
            break
        count *= size
    return max(count, 1)
