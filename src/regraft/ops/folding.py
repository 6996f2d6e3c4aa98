"""Batch normalisation in evaluation, folded into the weights of the layer before it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from regraft.ops.plain import (
    are_functions_overridden,
    are_kernels_forced,
    are_tensors,
    is_plain,
)

# Weights that are folded in half precision are rounded a second time: there the composition is more
# accurate.
_FOLDED_TYPES = (torch.float32, torch.float64)
# The least number of elements of a result for which folding pays, in total and for each weight:
# with fewer elements, the small operations on the weights cost more than the pass over the result
# that they save (`benchmarks/results/effect-folding.txt`). On other devices than CPU this has not
# been measured.
_LEAST_FOLDED = 2**20
_LEAST_ELSEWHERE = 2**25
_FOR_EACH_WEIGHT = 64
# Layers of libraries that normalise like their base class of PyTorch, and then call some of their
# own members:
# https://github.com/huggingface/pytorch-image-models/blob/v1.0.31/timm/layers/norm_act.py
_MEMBERS_AFTER = {("timm.layers.norm_act", "BatchNormAct2d"): ("drop", "act")}


def can_fold(
    x: torch.Tensor,
    layer: nn.Module,
    norm: Any,
    kind: type[nn.Module],
    channels: int,
    positions: int,
) -> bool:
    """Return whether `norm(layer(x))` can run as `layer` with other weights, as exactly and, by its
    size, faster.

    layer      a convolution or Linear, with `weight` and `bias` (or None)
    norm       a batch normalisation of the class `kind`, or a known layer derived from it; False
               for one that uses the statistics of the batch
    channels   number of outputs of `layer`
    positions  number of elements of the result for each channel
    """
    weight = layer._parameters.get("weight")
    if torch.compiler.is_compiling() or not _folding_pays(positions * channels, weight):
        return False  # the surrounding compiler folds by itself, and sees the hooks
    if torch.jit.is_tracing() or are_functions_overridden() or not is_plain(layer, type(layer)):
        return False
    if not are_tensors(x) or x.dtype not in _FOLDED_TYPES or not _is_foldable(norm, kind):
        return False
    if torch.is_grad_enabled() and norm.weight is not None and norm.weight.requires_grad:
        return False  # through folded weights this gradient is a difference of large sums
    if norm.training or _is_autocast_enabled(x.device.type):
        return False
    return _do_weights_fit(x, layer, norm, channels)


def _is_foldable(norm: Any, kind: type[nn.Module]) -> bool:
    """Return whether a normalisation is plain: of the class `kind`, or a known layer derived
    from it."""
    is_known_layer = isinstance(norm, kind) and _class_name(norm) in _MEMBERS_AFTER
    return is_plain(norm, type(norm) if is_known_layer else kind)


def _is_autocast_enabled(device: str) -> bool:
    """Return whether `torch.autocast` is enabled; also on devices that have none."""
    has_autocast = torch.amp.is_autocast_available(device)
    return bool(has_autocast and torch.is_autocast_enabled(device))


def _do_weights_fit(x: torch.Tensor, layer: Any, norm: Any, channels: int) -> bool:
    """Return whether the statistics and parameters are vectors of `channels` numbers in the dtype
    of `x`, as is the strided weight of the layer."""
    if any(type(tensor) is not torch.Tensor for tensor in (norm.running_mean, norm.running_var)):
        return False
    vectors = (norm.running_mean, norm.running_var, norm.weight, norm.bias, layer.bias)
    present: list[Any] = [tensor for tensor in vectors if tensor is not None]
    if any(tensor.shape != (channels,) or tensor.dtype is not x.dtype for tensor in present):
        return False
    weight = layer.weight
    return bool(weight.layout is torch.strided and weight.dtype is x.dtype)


def _folding_pays(result_size: int, weight: Any) -> bool:
    """Return whether a result of this many elements is large enough for a weight, or
    REGRAFT_KERNELS=always demands folding; never without a weight."""
    if weight is None:
        return False
    least = _LEAST_FOLDED if weight.is_cpu else _LEAST_ELSEWHERE
    is_large = result_size >= least and result_size >= _FOR_EACH_WEIGHT * weight.numel()
    return is_large or are_kernels_forced()


def scale_and_shift(norm: Any, bias: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `scale` and `shift` such that `norm(y + bias)` in evaluation is `y * scale + shift`.

    Both have the shape `(norm.num_features,)` and are differentiable.
    """
    scale = torch.rsqrt(norm.running_var + norm.eps)
    if norm.weight is not None:
        scale = scale * norm.weight
    if bias is None and norm.bias is not None:
        return scale, torch.addcmul(norm.bias, norm.running_mean, scale, value=-1)
    centred = -norm.running_mean if bias is None else bias - norm.running_mean
    return scale, centred * scale if norm.bias is None else torch.addcmul(norm.bias, centred, scale)


def apply_members_after(norm: nn.Module, normalised: torch.Tensor) -> torch.Tensor:
    """Apply the members that a foldable normalisation calls on the result: dropout and activation,
    or none."""
    for member in _MEMBERS_AFTER.get(_class_name(norm), ()):
        normalised = getattr(norm, member)(normalised)
    return normalised


def _class_name(module: object) -> tuple[str, str]:
    """Return the module and the qualified name of a layer's class."""
    return type(module).__module__, type(module).__qualname__
