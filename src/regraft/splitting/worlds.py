"""Two worlds: the example, and one in which every size that data, loops or inputs decide is larger.

What differs between them depends on a size; it stays open in regions and is computed by the host.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

GROWN = 5  # elements more in the second world

aten = torch.ops.aten


def longer(tensor: torch.Tensor, dims: Iterable[int]) -> torch.Tensor:
    """The tensor with more elements in these dimensions; its last ones repeated, so that they stay valid."""
    for dim in dims:
        size = tensor.shape[dim]
        if size:
            tensor = tensor.index_select(dim, torch.arange(size + GROWN).clamp(max=size - 1))
        else:
            tensor = tensor.new_zeros([*tensor.shape[:dim], GROWN, *tensor.shape[dim + 1 :]])
    return tensor


def sized_by_data(func: Any, args: Any) -> bool:
    """Whether the values of tensors decide the shape of the result."""
    if torch.Tag.dynamic_output_shape not in func.tags:
        return False
    return func is not aten.index.Tensor or any(is_mask(one) for one in args[1])


def is_mask(index: torch.Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def first_shape(result: Any) -> torch.Size:
    return (result if isinstance(result, torch.Tensor) else result[0]).shape


class Longer(TorchDispatchMode):  # type: ignore[misc]
    """Operations whose result has a size that data decides give more elements than in the example.

    shapes: what they gave there, in turn; where the size differs by itself, because the data do, it stays as it is.
    """

    def __init__(self, shapes: Iterable[torch.Size]) -> None:
        super().__init__()
        self.shapes = iter(shapes)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (aten.index_put.default, aten.index_put_.default) and any(map(is_mask, args[1])):
            values = args[2]
            places = indices(args[1], 0)
            if values.ndim and values.shape[0] not in (1, next(len(one) for one in places if one is not None)):
                places = indices(args[1], GROWN)
            return func(args[0], places, *args[2:], **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        if not sized_by_data(func, args) or first_shape(result) != next(self.shapes, first_shape(result)):
            return result
        if func is aten.index.Tensor:
            return func(args[0], indices(args[1], GROWN), **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            return longer(result, [0])
        values, places_of, counts = result  # of torch.unique
        return longer(values, [0]), places_of, longer(counts, [0]) if counts.numel() else counts


def indices(given: Any, more: int) -> list[torch.Tensor | None]:
    """Indices with places instead of masks, and as many more of them."""
    places: list[torch.Tensor | None] = []
    for one in given:
        found = one.nonzero() if is_mask(one) else None
        places.extend([one] if found is None else (longer(found, [0]) if more else found).unbind(1))
    return places
