"""A gated linear unit by one kernel, which keeps only its input for the backward pass."""

from __future__ import annotations

import torch
from torch.nn import functional

from regraft.ops.plain import are_overridden, is_transformed


def gated_halves(x: torch.Tensor, dim: int, *, larger_first: bool = True) -> torch.Tensor:
    """Return the first half of `x` along `dim`, multiplied by the sigmoid of the second half, by
    `torch.nn.functional.glu`.

    Shapes: x of any shape; the result has half as many elements along `dim`. Halves of an odd
    number of elements are not equal: the first one is larger, as chunks are, or with
    `larger_first=False` the second one, as slices are. Most such sizes are refused, as before.
    """
    if gated_halves_implementation(x, dim, larger_first=larger_first) == "reference":
        return gated_halves_reference(x, dim, larger_first=larger_first)
    return functional.glu(x, dim)


def gated_halves_reference(x: torch.Tensor, dim: int, *, larger_first: bool = True) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    if larger_first:
        values, gate = torch.chunk(x, 2, dim=dim)
    else:
        middle = x.shape[dim] // 2
        values, gate = torch.split(x, (middle, x.shape[dim] - middle), dim=dim)
    return values * torch.sigmoid(gate)


def gated_halves_implementation(x: torch.Tensor, dim: int, *, larger_first: bool = True) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    if not isinstance(x, torch.Tensor) or are_overridden(x) or is_transformed():
        return "reference"
    is_native = x.is_floating_point() and x.shape[dim] % 2 == 0
    return "torch-native" if is_native else "reference"
