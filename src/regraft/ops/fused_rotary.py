"""Rotary position embedding in the half style by NVIDIA's Transformer Engine, else by the
composition.

Its kernel takes `(positions, ..., ..., size)` in any layout of memory, and an angle for each
position and each element of a head.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from regraft.ops.plain import differentiable_once, library_function, on_one_gpu
from regraft.ops.rotary import rotary_reference


def te_rotary(x: torch.Tensor, angles: torch.Tensor, *, rounded: bool = False) -> torch.Tensor:
    """Return `rotary` with the cosines and sines of `angles`, by Transformer Engine's
    `apply_rotary_pos_emb`.

    Shapes: `x` and the result have four dimensions, the last of an even size; `angles` broadcast to
    `x`, differ along the last dimension and one other only, are float32 and need no gradient. If
    `rounded` is true, cosines and sines are rounded to the dtype of `x`; otherwise the kernel takes
    float32 only, because the result would be wider than `x`. Any other arguments, and all arguments
    where Transformer Engine is not installed, run as the composition.
    """
    kernel = _te_kernel()
    if (
        te_rotary_implementation(x, angles, rounded=rounded) != "transformer-engine"
        or kernel is None
    ):
        return te_rotary_reference(x, angles, rounded=rounded)
    return rotary_through_te(kernel, x, angles)


def te_rotary_reference(
    x: torch.Tensor, angles: torch.Tensor, *, rounded: bool = False
) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    dtype = x.dtype if rounded else angles.dtype
    return rotary_reference(x, torch.cos(angles).to(dtype), torch.sin(angles).to(dtype))


def rotary_through_te(
    kernel: Callable[..., torch.Tensor], x: torch.Tensor, angles: torch.Tensor
) -> torch.Tensor:
    """Call Transformer Engine's kernel, which computes in float32.

    Source: https://docs.nvidia.com/deeplearning/transformer-engine,
    `transformer_engine/pytorch/attention/rope.py`
    """
    dimension = position_dimension(x, angles)
    assert dimension is not None
    table = angles.reshape(x.shape[dimension], 1, 1, x.shape[-1])
    rotated = kernel(
        x.movedim(dimension, 0), table, tensor_format="sbhd", interleaved=False, fused=True
    )
    return differentiable_once(rotated).movedim(0, dimension).contiguous()


def te_rotary_implementation(
    x: torch.Tensor, angles: torch.Tensor, *, rounded: bool = False
) -> str:
    """Name the implementation for these arguments: "transformer-engine" or "reference"."""
    fits = on_one_gpu(x) and on_one_gpu(angles) and x.device == angles.device
    fits = fits and angles.dtype == torch.float32 and not angles.requires_grad
    fits = (
        fits and (rounded or x.dtype == torch.float32) and position_dimension(x, angles) is not None
    )
    return "transformer-engine" if fits and _te_kernel() is not None else "reference"


def position_dimension(x: torch.Tensor, table: torch.Tensor) -> int | None:
    """Return the dimension of `x` along which a table of angles differs; None unless it is one of
    the first three."""
    if x.dim() != 4 or table.dim() > 4 or x.shape[-1] % 2 or table.shape[-1] != x.shape[-1]:
        return None
    sizes = (*[1] * (4 - table.dim()), *table.shape)
    dimensions = [dimension for dimension in range(3) if sizes[dimension] != 1]
    return (
        dimensions[0]
        if len(dimensions) == 1 and sizes[dimensions[0]] == x.shape[dimensions[0]]
        else None
    )


def _te_kernel() -> Callable[..., torch.Tensor] | None:
    """Return Transformer Engine's kernel; None where it is not installed or does not load."""
    return library_function("transformer_engine.pytorch.attention.rope", "apply_rotary_pos_emb")
