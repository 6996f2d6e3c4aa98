"""Rotary position embedding in the half style through NVIDIA's Transformer Engine; else as it stands.

It takes `(positions, ..., ..., size)` in any layout of memory, and one angle for each position and place in a head.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from regraft.ops.plain import differentiable_once, library_function, on_one_gpu
from regraft.ops.rotary import rotary_reference


def te_rotary(x: torch.Tensor, angles: torch.Tensor, *, rounded: bool = False) -> torch.Tensor:
    """`rotary` with the cosines and sines of `angles`, by `transformer_engine.pytorch`'s `apply_rotary_pos_emb`.

    Shapes: `x` and the result have four dimensions, the last of an even size; `angles` broadcast to `x`, differ along
    the last dimension and one other only, are float32 and need no gradient. `rounded` says that cosines and sines are
    rounded to the dtype of `x`; without it, the kernel takes float32 only, as the result would be wider than `x`.
    Anything else, also where Transformer Engine is not installed, runs as the composition.
    """
    kernel = _te_kernel()
    if te_rotary_implementation(x, angles, rounded=rounded) != "transformer-engine" or kernel is None:
        return te_rotary_reference(x, angles, rounded=rounded)
    return rotary_through_te(kernel, x, angles)


def te_rotary_reference(x: torch.Tensor, angles: torch.Tensor, *, rounded: bool = False) -> torch.Tensor:
    """The composition that the op replaces."""
    dtype = x.dtype if rounded else angles.dtype
    return rotary_reference(x, torch.cos(angles).to(dtype), torch.sin(angles).to(dtype))


def rotary_through_te(kernel: Callable[..., torch.Tensor], x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Call Transformer Engine's kernel, which computes in float32.

    Source: https://docs.nvidia.com/deeplearning/transformer-engine, `transformer_engine/pytorch/attention/rope.py`
    """
    place = position_dimension(x, angles)
    assert place is not None
    table = angles.reshape(x.shape[place], 1, 1, x.shape[-1])
    turned = kernel(x.movedim(place, 0), table, tensor_format="sbhd", interleaved=False, fused=True)
    return differentiable_once(turned).movedim(0, place).contiguous()


def te_rotary_implementation(x: torch.Tensor, angles: torch.Tensor, *, rounded: bool = False) -> str:
    """Name of what runs for these arguments: "transformer-engine" or "reference"."""
    fits = on_one_gpu(x) and on_one_gpu(angles) and x.device == angles.device
    fits = fits and angles.dtype == torch.float32 and not angles.requires_grad
    fits = fits and (rounded or x.dtype == torch.float32) and position_dimension(x, angles) is not None
    return "transformer-engine" if fits and _te_kernel() is not None else "reference"


def position_dimension(x: torch.Tensor, table: torch.Tensor) -> int | None:
    """The dimension of `x` along which a table of angles differs; None where it is not one of the first three."""
    if x.dim() != 4 or table.dim() > 4 or x.shape[-1] % 2 or table.shape[-1] != x.shape[-1]:
        return None
    sizes = (*[1] * (4 - table.dim()), *table.shape)
    places = [place for place in range(3) if sizes[place] != 1]
    return places[0] if len(places) == 1 and sizes[places[0]] == x.shape[places[0]] else None


def _te_kernel() -> Callable[..., torch.Tensor] | None:
    return library_function("transformer_engine.pytorch.attention.rope", "apply_rotary_pos_emb")
