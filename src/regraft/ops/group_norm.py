"""Group normalisation with Liger's kernel for the backward pass."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn

from regraft.ops.liger import LigerKernel, can_run_liger, liger_module
from regraft.ops.plain import is_plain


def group_norm(x: torch.Tensor, norm: Any) -> torch.Tensor:
    """Return `norm(x)`, with Liger's kernel for the backward pass.

    Shapes: `x` and the result are `(N, C, ...)`. `norm` is the model's own module: any module but a
    plain `torch.nn.GroupNorm` with weight and bias is called as the model calls it. The forward
    pass is PyTorch's, since Liger's takes the variance as the mean of squares less the square of
    the mean, which loses digits (decision 28).
    """
    if group_norm_implementation(x, norm) != "liger":
        return group_norm_reference(x, norm)
    return _group_norm_kernel(norm.num_groups, float(norm.eps))(x, norm.weight, norm.bias)


def group_norm_reference(x: torch.Tensor, norm: Any) -> torch.Tensor:
    """Call the module as the model calls it."""
    result: torch.Tensor = norm(x)
    return result


def group_norm_implementation(x: torch.Tensor, norm: Any) -> str:
    """Name the implementation for these arguments: "liger" or "reference".

    The kernel runs in float32 only: in half precision it sums gradients of weights in bfloat16. It
    sums them in no fixed order, so deterministic algorithms exclude it. Groups of one value run as
    the original does: PyTorch gives them a gradient of exactly zero, the kernel gives rounding
    errors over sqrt(eps).
    """
    if not is_plain(norm, nn.GroupNorm) or norm.weight is None or norm.bias is None:
        return "reference"
    if not can_run_liger(x, norm.weight, norm.bias) or not x.is_contiguous():
        return "reference"
    if torch.are_deterministic_algorithms_enabled() or torch.is_autocast_enabled(x.device.type):
        return "reference"
    fits = (
        x.dim() > 1 and x.shape[1] == norm.num_channels and x.numel() > x.shape[0] * norm.num_groups
    )
    return (
        "liger"
        if fits and x.dtype == norm.weight.dtype == norm.bias.dtype == torch.float32
        else "reference"
    )


@functools.lru_cache(maxsize=64)
def _group_norm_kernel(groups: int, eps: float) -> LigerKernel:
    """Make the kernel for these options; Liger has to be installed."""
    module = liger_module("group_norm")
    assert module is not None

    def forward(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        rows, channels = x.shape[:2]
        inner = x.numel() // (rows * channels)
        result, mean, scale = torch.native_group_norm(
            x, weight, bias, rows, channels, inner, groups, eps
        )
        return result, (mean, scale)

    def backward(
        inputs: tuple[torch.Tensor, ...], saved: tuple[torch.Tensor, ...], gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        x, weight, bias = (tensor.contiguous() for tensor in inputs)
        gradients: tuple[torch.Tensor, ...] = module.group_norm_backward(
            gradient.contiguous(), x, weight, bias, *saved, x.shape[1], groups
        )
        return gradients

    def reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return nn.functional.group_norm(x, groups, weight, bias, eps)

    return LigerKernel(forward, backward, reference)
