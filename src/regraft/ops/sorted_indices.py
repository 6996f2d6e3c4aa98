"""The indices of the first elements of a sorted tensor, without sorting the rest."""

from __future__ import annotations

from typing import Any

import torch

from regraft.ops.plain import is_transformed
from regraft.ops.sorted_head import asks_for_half, head_along

# The least numbers of elements of a tensor and of each of its rows: a sort of fewer takes as long.
_LEAST_NUMBERS = 4096
_LEAST_LENGTH = 128


def sorted_indices(
    x: torch.Tensor, count: int, axis: int, *, dim: int = -1, descending: bool = False
) -> torch.Tensor:
    """Return the first `count` elements along `axis` of `torch.argsort(x, dim, descending)`, by
    `torch.topk`.

    Shapes: as `x`, with `count` elements at most along `axis`; int64. The two order equal numbers
    differently: where the first `count + 1` numbers of a row are not all different, the row is
    sorted. `torch.argsort` runs on the whole of a small tensor, of whole and 16-bit numbers, on
    other devices than the CPU, where the two dimensions differ, and where more than half of the
    elements are asked for.
    """
    name = sorted_indices_implementation(x, count, axis, dim=dim, descending=descending)
    if name == "reference":
        return sorted_indices_reference(x, count, axis, dim=dim, descending=descending)
    rows = x.detach().movedim(dim, -1)
    values, indices = torch.topk(rows, count + 1, -1, largest=descending)
    earlier, later = values[..., :-1], values[..., 1:]
    is_ordered = (earlier > later if descending else earlier < later).all(-1)  # not with NaN
    if not is_ordered.all():
        if rows.dim() == 1 or not rows.is_contiguous():
            return sorted_indices_reference(x, count, axis, dim=dim, descending=descending)
        ties = ~is_ordered
        indices[ties] = torch.argsort(rows[ties], -1, descending)[:, : count + 1]
    return indices[..., :-1].movedim(-1, dim)


def sorted_indices_reference(
    x: torch.Tensor, count: Any, axis: int, *, dim: int = -1, descending: bool = False
) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    return head_along(torch.argsort(x, dim=dim, descending=descending), count, axis)


def sorted_indices_implementation(
    x: torch.Tensor, count: int, axis: int, *, dim: int = -1, descending: bool = False
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    if not asks_for_half(x, count, axis, dim, descending):
        return "reference"
    if x.dtype not in (torch.float32, torch.float64) or x.device.type != "cpu":
        return "reference"
    if x.shape[dim] < _LEAST_LENGTH or x.numel() < _LEAST_NUMBERS:
        return "reference"
    return "reference" if is_transformed() else "torch-native"
