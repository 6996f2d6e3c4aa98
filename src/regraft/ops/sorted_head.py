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
    values = torch.sort(x, dim=dim, descending=descending)[0]
    leading = (...,) if axis < 0 else (slice(None),) * axis
    return values[(*leading, slice(count))]


def sorted_head_implementation(
    x: torch.Tensor, count: int, axis: int, *, dim: int = -1, descending: bool = False
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    if not are_tensors(x) or not x.dim() or not are_constants(count, dim, descending):
        return "reference"
    if not -x.dim() <= dim < x.dim() or dim % x.dim() != axis % x.dim() or axis >= x.dim():
        return "reference"
    if not 0 < 2 * count <= x.shape[dim] or (x.requires_grad and torch.is_grad_enabled()):
        return "reference"
    return "reference" if x.is_complex() or is_transformed() else "torch-native"


def are_constants(count: Any, dim: Any, descending: Any) -> bool:
    """Return whether arguments are numbers and a flag of Python."""
    return type(count) is int and type(dim) is int and type(descending) is bool
