"""Rotations of pairs of numbers on CPU, by a product of complex numbers."""

from __future__ import annotations

import torch

from regraft.ops.plain import are_tensors, is_transformed, without_view


def rotated_pairs(
    first: torch.Tensor, second: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Return `first * cos - second * sin` and `first * sin + second * cos`, stacked in a new last
    dimension.

    Shapes: `first` and `second` are `(..., D)`, `cos` and `sin` broadcast to them, and the result
    is `(..., D, 2)`. Tensors on CPU of one dtype, float32 or float64, are multiplied as complex
    numbers, in three passes over memory instead of eight; any others run as the composition, as
    does TorchScript.
    """
    if torch.jit.is_scripting():
        return rotated_pairs_reference(first, second, cos, sin)
    else:  # which TorchScript does not compile
        return _rotated_pairs(first, second, cos, sin)


def _rotated_pairs(
    first: torch.Tensor, second: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Return the result of `rotated_pairs` outside of TorchScript."""
    if rotated_pairs_implementation(first, second, cos, sin) != "torch-native":
        return rotated_pairs_reference(first, second, cos, sin)
    product = torch.complex(first, second) * torch.complex(cos, sin)
    return without_view(torch.view_as_real(product.contiguous()))


def rotated_pairs_reference(
    first: torch.Tensor, second: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    turned = (first * cos - second * sin, first * sin + second * cos)
    return torch.stack(turned, dim=-1)


def rotated_pairs_implementation(
    first: torch.Tensor, second: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    if not are_tensors(first, second, cos, sin):
        return "reference"
    if not (first.is_cpu and second.is_cpu and cos.is_cpu and sin.is_cpu):
        return "reference"
    dtype = first.dtype
    has_dtype = (dtype is torch.float32 or dtype is torch.float64) and (
        dtype is second.dtype is cos.dtype is sin.dtype
    )
    has_shapes = first.shape == second.shape and cos.shape == sin.shape
    return "torch-native" if has_dtype and has_shapes and not is_transformed() else "reference"
