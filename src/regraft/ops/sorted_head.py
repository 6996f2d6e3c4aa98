"""The first elements of a sorted tensor, without sorting the rest."""

from __future__ import annotations

from typing import Any

import torch

from regraft.ops.plain import are_tensors, is_transformed


def sorted_head(
    x: torch.Tensor, count: int, axis: int, *, dim: int = -1, descending: bool = False
) -> torch.Tensor:
    """Return the first `count` elements along `axis` of `torch.sort(x, dim, descending)[0]`, by
    `torch.topk`.

    Shapes: as `x`, with `count` elements at most along `axis`. Where values are equal the two
    choose others of them, which a gradient would tell; so with gradients `torch.sort` runs, and
    where the two dimensions differ or more than half of the elements are asked for.
    """
    if sorted_head_implementation(x, count, axis, dim=dim, descending=descending) == "torch-native":
        return torch.topk(x, count, dim, largest=descending)[0]
    return sorted_head_reference(x, count, axis, dim=dim, descending=descending)


def sorted_head_reference(
    x: torch.Tensor, count: Any, axis: int, *, dim: int = -1, descending: bool = False
) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    return head_along(torch.sort(x, dim=dim, descending=descending)[0], count, axis)


def sorted_head_implementation(
    x: torch.Tensor, count: int, axis: int, *, dim: int = -1, descending: bool = False
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    if not asks_for_half(x, count, axis, dim, descending):
        return "reference"
    if (x.requires_grad and torch.is_grad_enabled()) or x.is_complex():
        return "reference"
    return "reference" if is_transformed() else "torch-native"


def head_along(values: torch.Tensor, count: Any, axis: int) -> torch.Tensor:
    """Return the first `count` elements along `axis`, as a slice; -1 is the last dimension."""
    leading = (...,) if axis < 0 else (slice(None),) * axis
    return values[(*leading, slice(count))]


def asks_for_half(x: torch.Tensor, count: Any, axis: int, dim: Any, descending: Any) -> bool:
    """Return whether `x` is a plain tensor that is sorted along the dimension that is cut, and at
    most half of its elements are asked for by plain numbers."""
    if not are_tensors(x) or not x.dim():
        return False
    if type(count) is not int or type(dim) is not int or type(descending) is not bool:
        return False
    if not -x.dim() <= dim < x.dim() or dim % x.dim() != axis % x.dim() or axis >= x.dim():
        return False
    return bool(0 < 2 * count <= x.shape[dim])
