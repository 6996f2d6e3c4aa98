"""Layer normalisation by Liger's kernel."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn

from regraft.ops.liger import LigerKernel, can_run_liger, liger_module
from regraft.ops.plain import is_plain


def layer_norm(x: torch.Tensor, norm: Any) -> torch.Tensor:
    """Return `norm(x)`, by Liger's kernel.

    Shapes: `x` and the result are `(..., *norm.normalized_shape)`. `norm` is the model's own
    module: any module but a plain `torch.nn.LayerNorm` over the last dimension, with weight and
    bias of the dtype of `x`, is called as the model calls it.
    """
    if layer_norm_implementation(x, norm) != "liger":
        return layer_norm_reference(x, norm)
    return layer_norm_kernel(float(norm.eps))(x, norm.weight, norm.bias)


def layer_norm_reference(x: torch.Tensor, norm: Any) -> torch.Tensor:
    """Call the module as the model calls it."""
    result: torch.Tensor = norm(x)
    return result


def layer_norm_implementation(x: torch.Tensor, norm: Any) -> str:
    """Name the implementation for these arguments: "liger" or "reference"."""
    if (
        not is_plain(norm, nn.LayerNorm)
        or len(norm.normalized_shape) != 1
        or norm.weight is None
        or norm.bias is None
    ):
        return "reference"
    return "liger" if can_run_layer_norm(x, norm.weight, norm.bias) else "reference"


def can_run_layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> bool:
    """Return whether Liger's kernel runs on these arguments: outside of autocast, with weight and
    bias of the dtype of `x` and of the size of its last dimension."""
    if not can_run_liger(x, weight, bias) or torch.is_autocast_enabled(x.device.type):
        return False
    parameters = [tensor for tensor in (weight, bias) if tensor is not None]
    return all(tensor.dtype == x.dtype and tensor.shape == x.shape[-1:] for tensor in parameters)


@functools.lru_cache(maxsize=64)
def layer_norm_kernel(eps: float) -> LigerKernel:
    """Make the kernel for this epsilon; Liger has to be installed."""
    module = liger_module("layer_norm")
    assert module is not None

    def forward(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        bias = torch.zeros_like(weight) if bias is None else bias
        result, _, mean, scale, *_ = module.layer_norm_forward(
            x.contiguous(), weight.contiguous(), bias.contiguous(), eps
        )
        return result, (mean, scale)

    def backward(
        inputs: tuple[torch.Tensor | None, ...],
        saved: tuple[torch.Tensor, ...],
        gradient: torch.Tensor,
    ) -> tuple[torch.Tensor | None, ...]:
        x, weight, bias = inputs
        assert x is not None and weight is not None
        x, weight = x.contiguous(), weight.contiguous()
        bias = torch.zeros_like(weight) if bias is None else bias.contiguous()
        rows = x.view(-1, x.shape[-1])
        gradients: tuple[torch.Tensor, ...] = module.layer_norm_backward(
            gradient.contiguous(), rows, weight, bias, *saved
        )
        return gradients

    def reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return nn.functional.layer_norm(x, weight.shape, weight, bias, eps)

    return LigerKernel(forward, backward, reference)
