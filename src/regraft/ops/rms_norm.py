"""Root mean square normalisation with its weight."""

from __future__ import annotations

import functools

import torch

from regraft.ops.liger import LigerKernel, liger, takes


def rms_norm(
    x: torch.Tensor, *, weight: torch.Tensor | None = None, eps: float = 1e-6, offset: float = 0.0,
    casting: str = "llama",
) -> torch.Tensor:  # fmt: skip
    """`x / sqrt(mean(x ** 2, -1) + eps) * (offset + weight)`, by Liger's kernel.

    Shapes: `x` is `(..., H)`, `weight` `(H,)`, the result as `x`. `casting` says what is rounded where: "llama"
    computes in float32, rounds to the dtype of `x`, then multiplies by the weight, in the wider of both dtypes;
    "gemma" computes everything in float32 and rounds the product to the dtype of `x`; "none" computes in the dtype of
    `x`. What the kernel does not take as the composition would (another device or dtype, a weight of another shape)
    runs as the composition. Unlike Liger's own function, it never writes into a gradient that others may hold.
    """
    if rms_norm_implementation(x, weight, casting) != "liger":
        return rms_norm_reference(x, weight=weight, eps=eps, offset=offset, casting=casting)
    if weight is not None and casting == "llama" and (offset or weight.dtype != x.dtype):
        # the kernel would add the offset in float32, and return the dtype of x
        return rms_norm(x, eps=eps) * (offset + weight if offset else weight)
    return _rms_norm_kernel(float(eps), float(offset), casting)(x, weight)


def rms_norm_reference(
    x: torch.Tensor, *, weight: torch.Tensor | None = None, eps: float = 1e-6, offset: float = 0.0,
    casting: str = "llama",
) -> torch.Tensor:  # fmt: skip
    """The composition that the op replaces."""
    wide = x if casting == "none" else x.to(torch.float32)
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    if casting == "llama":
        normed = normed.to(x.dtype)
    if weight is not None:
        scale = weight.to(torch.float32) if casting == "gemma" else weight
        normed = normed * (offset + scale if offset else scale)
    return normed.to(x.dtype) if casting == "gemma" else normed


def rms_norm_implementation(x: torch.Tensor, weight: torch.Tensor | None = None, casting: str = "llama") -> str:
    """Name of what runs for these arguments: "liger" or "reference"."""
    if casting == "none" and x.dtype != torch.float32:
        return "reference"  # the composition rounds every step
    fits = takes(x, weight) and (weight is None or weight.shape == x.shape[-1:])
    return "liger" if fits else "reference"


@functools.lru_cache(maxsize=64)
def _rms_norm_kernel(eps: float, offset: float, casting: str) -> LigerKernel:
    module = liger("rms_norm")
    assert module is not None

    def forward(x: torch.Tensor, weight: torch.Tensor | None) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        weight = weight if weight is None else weight.contiguous()
        result, _, scale, *_ = module.rms_norm_forward(x.contiguous(), weight, eps, offset, casting, None)
        return result, (scale,)

    def backward(
        inputs: tuple[torch.Tensor, torch.Tensor | None], kept: tuple[torch.Tensor], gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        x, weight = inputs
        rows = x.contiguous().view(-1, x.shape[-1])
        size, warps = module.calculate_settings(x.shape[-1])
        mode = module._str_to_casting_mode[casting]
        weight = weight if weight is None else weight.contiguous()
        in_place, by_row = False, None
        slopes: tuple[torch.Tensor | None, ...] = module.rms_norm_backward(
            gradient.contiguous(), rows, weight, kept[0], offset, mode, size, warps, in_place, by_row
        )
        return slopes

    def reference(x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        return rms_norm_reference(x, weight=weight, eps=eps, offset=offset, casting=casting)

    return LigerKernel(forward, backward, reference)
