"""Rotary position embedding in the half style on CPU, without a tensor of turned halves for each sign."""

from __future__ import annotations

import torch

from regraft.ops.plain import are_tensors, is_transformed
from regraft.ops.rotary import rotary_reference

_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def rolled_rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """`rotary`, as `x * cos + roll(x) * sin` with the signs in the table of sines.

    Shapes: `x` and the result are `(..., D)` with an even `D`; `cos` and `sin` broadcast to `x`. On CPU, where all
    have one dtype and the table of sines has at most half of the elements of `x`, in three passes over memory.
    Anything else runs as the composition: a compiler fuses that, and elsewhere nothing has been measured.
    """
    if rolled_rotary_implementation(x, cos, sin) != "torch-native":
        return rotary_reference(x, cos, sin)
    half = x.shape[-1] // 2
    signed = torch.cat((-sin[..., :half], sin[..., half:]), dim=-1)
    return torch.addcmul(x * cos, torch.roll(x, half, -1), signed)


def rolled_rotary_implementation(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> str:
    """Name of what runs for these arguments: "torch-native" or "reference"."""
    given = (x, cos, sin)
    if not are_tensors(*given) or any(one.device.type != "cpu" for one in given):
        return "reference"
    if x.dtype not in _DTYPES or not x.dtype == cos.dtype == sin.dtype or x.dim() < max(cos.dim(), sin.dim()):
        return "reference"
    if not x.dim() or x.shape[-1] % 2 or sin.shape[-1:] != x.shape[-1:] or cos.shape[-1:] != x.shape[-1:]:
        return "reference"
    small = 2 * sin.numel() <= x.numel()
    return "torch-native" if small and not is_transformed() and not torch.is_autocast_enabled("cpu") else "reference"
