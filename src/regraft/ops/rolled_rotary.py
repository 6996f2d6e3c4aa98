"""Rotary position embedding in the half style on CPU, by a roll of the input and signs in the table
of sines."""

from __future__ import annotations

import torch

from regraft.ops.plain import are_tensors, is_transformed
from regraft.ops.rotary import rotary_reference

_ROLLED_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def rolled_rotary(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, larger_first: bool | None = False
) -> torch.Tensor:
    """Return `rotary(x, cos, sin)`, as `x * cos + roll(x) * sin` with the signs in the table of
    sines.

    Shapes: `x` and the result are `(..., D)`; `cos` and `sin` broadcast to `x`. Of an odd `D` the
    second half is the larger one, with `larger_first` the first, as `torch.chunk` cuts; None raises
    ValueError for an odd `D`. If all tensors are on CPU and have one dtype, and the table of sines
    has at most half of the elements of `x`, the op needs three passes over memory. Any other
    arguments run as the composition: a compiler fuses it, and the other cases have not been
    measured.
    """
    if rolled_rotary_implementation(x, cos, sin) != "torch-native":
        return rotary_reference(x, cos, sin, larger_first=larger_first)
    half = x.shape[-1] // 2
    signed_sin = torch.cat((-sin[..., :half], sin[..., half:]), dim=-1)
    return torch.addcmul(x * cos, torch.roll(x, half, -1), signed_sin)


def rolled_rotary_reference(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, larger_first: bool | None = False
) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    return rotary_reference(x, cos, sin, larger_first=larger_first)


def rolled_rotary_implementation(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, larger_first: bool | None = False
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    if not are_tensors(x, cos, sin) or not (x.is_cpu and cos.is_cpu and sin.is_cpu):
        return "reference"
    if x.dtype not in _ROLLED_DTYPES or not x.dtype is cos.dtype is sin.dtype:
        return "reference"
    x_shape, cos_shape, sin_shape = x.shape, cos.shape, sin.shape
    if not sin_shape or not cos_shape or len(x_shape) < max(len(cos_shape), len(sin_shape)):
        return "reference"
    if x_shape[-1] % 2 or not x_shape[-1] == cos_shape[-1] == sin_shape[-1]:
        return "reference"
    sin_is_small = 2 * sin.numel() <= x.numel()
    return (
        "torch-native"
        if sin_is_small and not is_transformed() and not torch.is_autocast_enabled("cpu")
        else "reference"
    )
