"""Softmax over the last dimension by Liger's kernel."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regraft.ops.liger import LigerKernel, can_run_liger, liger_module
from regraft.ops.plain import are_tensors, is_plain


def row_softmax(
    x: torch.Tensor, *, dtype: torch.dtype | None = None, layer: Any = None
) -> torch.Tensor:
    """Return `torch.nn.functional.softmax(x, -1, dtype=dtype)`, or `layer(x)`, by Liger's kernel.

    Shapes: the result has the shape of `x`. `layer` is the model's own `torch.nn.Softmax`. The
    kernel computes in float32 only; a result in another dtype, and a layer that is not plain or
    that has another dimension, run as the original does.
    """
    if row_softmax_implementation(x, dtype=dtype, layer=layer) != "liger":
        return row_softmax_reference(x, dtype=dtype, layer=layer)
    return _row_softmax_kernel()(x.to(torch.float32))


def row_softmax_reference(
    x: torch.Tensor, *, dtype: torch.dtype | None = None, layer: Any = None
) -> torch.Tensor:
    """Call the function, or the module as the model calls it."""
    result: torch.Tensor = functional.softmax(x, -1, dtype=dtype) if layer is None else layer(x)
    return result


def row_softmax_implementation(
    x: torch.Tensor, *, dtype: torch.dtype | None = None, layer: Any = None
) -> str:
    """Name the implementation for these arguments: "liger" or "reference"."""
    if not are_tensors(x) or not x.dim() or not can_run_liger(x):
        return "reference"
    is_supported = layer is None or (is_plain(layer, nn.Softmax) and layer.dim in (-1, x.dim() - 1))
    if not is_supported or (dtype or x.dtype) != torch.float32:
        return "reference"
    return "reference" if torch.is_autocast_enabled(x.device.type) else "liger"


@functools.cache
def _row_softmax_kernel() -> LigerKernel:
    """Make the kernel of softmax over the last dimension; Liger has to be installed."""
    module = liger_module("softmax")
    assert module is not None

    def forward(x: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        result, *_ = module._softmax_forward(x)
        return result, (result,)

    def backward(
        inputs: tuple[torch.Tensor, ...], saved: tuple[torch.Tensor, ...], gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        block_size, warps = module.calculate_settings(gradient.shape[-1])
        several_blocks = False
        return (module._softmax_backward(gradient, *saved, block_size, warps, several_blocks),)

    return LigerKernel(forward, backward, lambda x: functional.softmax(x, -1))
