"""Batch normalisation in evaluation as a change of the weights of the layer before it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from regraft.ops.plain import are_tensors, forced, is_plain

# Weights that are folded in half precision are rounded a second time: there the composition is more accurate.
_FOLDED_TYPES = (torch.float32, torch.float64)
# Elements of a result from which on folding gains, and how many for each weight: below, the small operations on the
# weights cost more than the pass over the result that they save. Elsewhere than on CPU it has not been measured.
_LEAST = {"cpu": 2**20}
_LEAST_ELSEWHERE = 2**25
_FOR_EACH_WEIGHT = 64
# Layers of libraries that normalise like their base class of PyTorch, and then call members of theirs:
# https://github.com/huggingface/pytorch-image-models/blob/v1.0.31/timm/layers/norm_act.py
_MEMBERS_AFTER = {("timm.layers.norm_act", "BatchNormAct2d"): ("drop", "act")}


def folds(x: torch.Tensor, layer: nn.Module, norm: Any, kind: type[nn.Module], channels: int, positions: int) -> bool:
    """True if `norm(layer(x))` is `layer` with other weights, as exact and, by the size of things, cheaper.

    layer      a convolution or Linear, with `weight` and `bias` (or None)
    kind       the batch normalisation that fits it, or a known layer of that kind; one that uses the statistics of the
               batch is not folded
    channels   outputs of `layer`
    positions  elements of the result for each channel
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False  # the compiler around it folds, and sees the hooks
    if not _folding_pays(positions * channels, layer.weight) or not is_plain(layer, type(layer)):
        return False
    known = isinstance(norm, kind) and _name(norm) in _MEMBERS_AFTER
    if not are_tensors(x) or x.dtype not in _FOLDED_TYPES or not is_plain(norm, type(norm) if known else kind):
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
    return bool(weight.layout is torch.strided and weight.dtype is x.dtype)


def _folding_pays(results: int, weight: Any) -> bool:
    least = _LEAST.get(weight.device.type, _LEAST_ELSEWHERE)
    return bool(results >= max(least, _FOR_EACH_WEIGHT * weight.numel())) or forced()


def scale_and_shift(norm: Any, bias: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """`norm(y + bias)` in evaluation is `y * scale + shift`: both of shape `(norm.num_features,)`, differentiable."""
    scale = torch.rsqrt(norm.running_var + norm.eps)
    if norm.weight is not None:
        scale = scale * norm.weight
    centred = -norm.running_mean if bias is None else bias - norm.running_mean
    shift = centred * scale
    return scale, shift if norm.bias is None else shift + norm.bias


def after(norm: nn.Module, normalised: torch.Tensor) -> torch.Tensor:
    """What a normalisation that `folds` does with the normalised tensor: most nothing, some drop and activate."""
    for member in _MEMBERS_AFTER.get(_name(norm), ()):
        normalised = getattr(norm, member)(normalised)
    return normalised


def _name(module: object) -> tuple[str, str]:
    return type(module).__module__, type(module).__qualname__
