"""The indices of the first elements of a sorted tensor, without sorting the rest."""

from __future__ import annotations

from typing import Any

import torch

from regraft.ops.plain import are_tensors, is_transformed
from regraft.ops.sorted_head import are_constants

_LEAST_NUMBERS = 4096  # of a tensor, and of each of its rows: below them a sort takes as long
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
    indices = torch.argsort(x, dim=dim, descending=descending)
    leading = (...,) if axis < 0 else (slice(None),) * axis
    return indices[(*leading, slice(count))]


def sorted_indices_implementation(
    x: torch.Tensor, count: int, axis: int, *, dim: int = -1, descending: bool = False
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    if not are_tensors(x) or not x.dim() or not are_constants(count, dim, descending):
        return "reference"
    if not -x.dim() <= dim < x.dim() or dim % x.dim() != axis % x.dim() or axis >= x.dim():
        return "reference"
    if x.dtype not in (torch.float32, torch.float64) or x.device.type != "cpu":
        return "reference"
    if not 0 < 2 * count <= x.shape[dim] or x.shape[dim] < _LEAST_LENGTH:
        return "reference"
    return "reference" if x.numel() < _LEAST_NUMBERS or is_transformed() else "torch-native"
