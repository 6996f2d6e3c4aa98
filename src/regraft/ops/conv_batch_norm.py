"""A convolution and the batch normalisation after it, as one convolution in evaluation."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regraft.ops.folding import apply_members_after, can_fold, scale_and_shift
from regraft.ops.plain import are_tensors

_TRANSPOSED = {
    nn.ConvTranspose1d: functional.conv_transpose1d,
    nn.ConvTranspose2d: functional.conv_transpose2d,
    nn.ConvTranspose3d: functional.conv_transpose3d,
}
NORM_AFTER = {
    nn.Conv1d: nn.BatchNorm1d,
    nn.Conv2d: nn.BatchNorm2d,
    nn.Conv3d: nn.BatchNorm3d,
    nn.ConvTranspose1d: nn.BatchNorm1d,
    nn.ConvTranspose2d: nn.BatchNorm2d,
    nn.ConvTranspose3d: nn.BatchNorm3d,
}


def conv_batch_norm(x: torch.Tensor, conv: Any, norm: Any) -> torch.Tensor:
    """Return `norm(conv(x))`.

    Shapes: `x` is `(N, conv.in_channels, *space)`, the result `(N, conv.out_channels, *space)`.
    `conv` and `norm` are the model's own modules; where nothing is folded they are called as the
    model calls them, bit for bit. In evaluation the running statistics are folded into the weights
    of the convolution, which then runs alone, if both modules are plain, all tensors are float32 or
    all are float64, no gradient of `norm.weight` is needed, and the result is large (on CPU 2**20
    elements, and 64 for each weight) or REGRAFT_KERNELS=always is in the environment. The
    normalisation may be timm's, which activates its result. The result is differentiable in the
    input and all parameters.
    """
    if conv_batch_norm_implementation(x, conv, norm) != "folded":
        return conv_batch_norm_reference(x, conv, norm)
    weight, bias = folded_weights(conv, norm)
    transposed = _TRANSPOSED.get(type(conv))
    if transposed is None:
        return apply_members_after(norm, conv._conv_forward(x, weight, bias))
    result: torch.Tensor = transposed(
        x,
        weight,
        bias,
        conv.stride,
        conv.padding,
        conv.output_padding,
        conv.groups,
        conv.dilation,
    )
    return apply_members_after(norm, result)


def folded_weights(conv: Any, norm: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weight and the bias of a convolution that computes `norm(conv(x))` in evaluation.

    They are computed in every call: see docs/decisions/0040-folding-is-not-cached.md.
    """
    scale, shift = scale_and_shift(norm, conv.bias)
    weight, kernel = conv.weight, (1,) * (conv.weight.dim() - 2)
    if type(conv) not in _TRANSPOSED:
        return weight * scale.reshape(-1, 1, *kernel), shift
    # the weight is (in, out / groups, *kernel), and the input channels are ordered by group
    scale = scale.reshape(conv.groups, 1, -1, *kernel)
    return (weight.unflatten(0, (conv.groups, -1)) * scale).flatten(0, 1), shift


def conv_batch_norm_reference(x: torch.Tensor, conv: Any, norm: Any) -> torch.Tensor:
    """Compute the composition that the op replaces, with the modules called as the model calls
    them."""
    result: torch.Tensor = norm(conv(x))
    return result


def conv_batch_norm_implementation(x: torch.Tensor, conv: Any, norm: Any) -> str:
    """Name the implementation for these arguments: "folded" or "reference"."""
    norm_class = NORM_AFTER.get(type(conv))
    if norm_class is None or not isinstance(norm, norm_class) or norm.training:
        return "reference"
    weight, shape = conv._parameters.get("weight"), x.shape
    if not are_tensors(x, weight) or len(shape) != weight.dim():
        # without a batch dimension the normalisation raises, or normalises another axis
        return "reference"
    stride = conv.stride  # the layer also runs if its user replaced the tuple by a number
    stride_product = stride ** (len(shape) - 2) if isinstance(stride, int) else math.prod(stride)
    positions = shape[0] * math.prod(shape[2:])
    if type(conv) in _TRANSPOSED:
        positions *= stride_product
    else:
        positions //= stride_product
    fits = can_fold(x, conv, norm, norm_class, conv.out_channels, positions)
    return "folded" if fits else "reference"
