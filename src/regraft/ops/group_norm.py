"""Group normalisation."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn

from regraft.ops.liger import LigerKernel, liger, takes
from regraft.ops.plain import is_plain


def group_norm(x: torch.Tensor, norm: Any) -> torch.Tensor:
    """`norm(x)`, whose backward pass Liger's kernel runs.

    Shapes: `x` and the result are `(N, C, ...)`. `norm` is the model's own module: whatever is not a plain
    `torch.nn.GroupNorm` with weight and bias is called like the original does. The forward pass is PyTorch's, since
    Liger's takes the variance as the mean of squares less the square of the mean, which loses digits (decision 28).
    """
    if group_norm_implementation(x, norm) != "liger":
        return group_norm_reference(x, norm)
    return _group_norm_kernel(norm.num_groups, float(norm.eps))(x, norm.weight, norm.bias)


def group_norm_reference(x: torch.Tensor, norm: Any) -> torch.Tensor:
    """The module, called as the model calls it."""
    result: torch.Tensor = norm(x)
    return result


def group_norm_implementation(x: torch.Tensor, norm: Any) -> str:
    """Name of what runs for these arguments: "liger" or "reference".

    In half precision the kernel adds gradients of weights up in bfloat16, and it adds them in no fixed order. A group
    of one value has no deviation: PyTorch gives a slope of exactly zero there, the kernel rounding over sqrt(eps).
    """
    if not is_plain(norm, nn.GroupNorm) or norm.weight is None or norm.bias is None:
        return "reference"
    if not takes(x, norm.weight, norm.bias) or not x.is_contiguous():
        return "reference"
    if torch.are_deterministic_algorithms_enabled() or torch.is_autocast_enabled(x.device.type):
        return "reference"
    fits = x.dim() > 1 and x.shape[1] == norm.num_channels and x.numel() > x.shape[0] * norm.num_groups
    return "liger" if fits and x.dtype == norm.weight.dtype == norm.bias.dtype == torch.float32 else "reference"


@functools.lru_cache(maxsize=64)
def _group_norm_kernel(groups: int, eps: float) -> LigerKernel:
    module = liger("group_norm")
    assert module is not None

    def forward(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        rows, channels = x.shape[:2]
        inner = x.numel() // (rows * channels)
        result, mean, scale = torch.native_group_norm(x, weight, bias, rows, channels, inner, groups, eps)
        return result, (mean, scale)

    def backward(
        inputs: tuple[torch.Tensor, ...], kept: tuple[torch.Tensor, ...], gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        x, weight, bias = (one.contiguous() for one in inputs)
        slopes: tuple[torch.Tensor, ...] = module.group_norm_backward(
            gradient.contiguous(), x, weight, bias, *kept, x.shape[1], groups
        )
        return slopes

    def reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return nn.functional.group_norm(x, groups, weight, bias, eps)

    return LigerKernel(forward, backward, reference)
