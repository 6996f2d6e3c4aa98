"""Rotary position embedding in the interleaved style on CPU, with signs in the table of sines."""

from __future__ import annotations

import torch

from regraft.ops.rolled_rotary import rolled_rotary_implementation


def interleaved_rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return `x * cos + turned * sin`, where `turned` has each odd element of the last dimension,
    negated, before the even one.

    Shapes: `x` and the result are `(..., D)`; `cos` and `sin` broadcast to `x`. An odd `D` raises
    RuntimeError. The conditions are those of `rolled_rotary`; any other arguments run as the
    composition.
    """
    if interleaved_rotary_implementation(x, cos, sin) != "torch-native":
        return interleaved_rotary_reference(x, cos, sin)
    exchanged = torch.stack((x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
    signed_sin = torch.stack((-sin[..., ::2], sin[..., 1::2]), dim=-1).flatten(-2)
    return torch.addcmul(x * cos, exchanged, signed_sin)


def interleaved_rotary_reference(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    turned = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
    return x * cos + turned * sin


def interleaved_rotary_implementation(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    return rolled_rotary_implementation(x, cos, sin)
