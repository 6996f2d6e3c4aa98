"""Batch normalisation in evaluation as a change of the weights of the layer before it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from regraft.ops.plain import are_tensors, is_plain

# Weights that are folded in half precision are rounded a second time: there the composition is more accurate.
_FOLDED_TYPES = (torch.float32, torch.float64)


def folds(x: torch.Tensor, layer: nn.Module, norm: Any, kind: type[nn.Module], channels: int, positions: int) -> bool:
    """True if `norm(layer(x))` is `layer` with other weights, as exact and, by the size of things, cheaper.

    layer      a plain convolution or Linear, with `weight` and `bias` (or None)
    kind       the batch normalisation that fits it; one that uses the statistics of the batch is not folded
    channels   outputs of `layer`
    positions  elements of the result for each channel: with fewer than weights for each channel nothing is gained
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False  # the compiler around it folds, and sees the hooks
    if not are_tensors(x) or x.dtype not in _FOLDED_TYPES or not is_plain(norm, kind):
        return False
    if torch.is_grad_enabled() and norm.weight is not None and norm.weight.requires_grad:
        return False  # through folded weights this gradient is a difference of large sums
    device = x.device.type
    if norm.training or (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)):
        return False
    if any(type(one) is not torch.Tensor for one in (norm.running_mean, norm.running_var)):
        return False
    rows = (norm.running_mean, norm.running_var, norm.weight, norm.bias, layer.bias)
    given: list[Any] = [one for one in rows if one is not None]
    if any(one.shape != (channels,) or one.dtype is not x.dtype for one in given):
        return False
    weight: Any = layer.weight
    strided = weight.layout is torch.strided and weight.dtype is x.dtype
    return strided and positions * channels >= weight.numel()


def scale_and_shift(norm: Any, bias: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """`norm(y + bias)` in evaluation is `y * scale + shift`: both of shape `(norm.num_features,)`, differentiable."""
    scale = torch.rsqrt(norm.running_var + norm.eps)
    if norm.weight is not None:
        scale = scale * norm.weight
    centred = -norm.running_mean if bias is None else bias - norm.running_mean
    shift = centred * scale
    return scale, shift if norm.bias is None else shift + norm.bias
