"""A convolution whose kernel is as large as each of its inputs, as a matrix product."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regraft.ops.plain import are_tensors, is_defined_in, is_plain, is_transformed

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_MULTIPLIED = (torch.float32, torch.float64, torch.bfloat16)


def conv_of_patches(patches: torch.Tensor, conv: Any) -> torch.Tensor:
    """Return `conv(patches)`.

    Shapes: `patches` is `(N, in_channels, *kernel_size)`, and the result `(N, out_channels, 1,
    ...)`. Each element is then the inner product of a patch and a kernel, and all of them are one
    matrix product, which is several times as fast as the convolution. The layer is called as the
    model calls it where it is not the plain one (hooks, LoRA, quantisation), where its kernel has
    another size than the patches, where it pads, dilates or groups, for other dtypes than
    float32, float64 and bfloat16, under autocast, for tensors that are not contiguous, and where
    the call is traced or compiled.
    """
    if conv_of_patches_implementation(patches, conv) != "matrix-product":
        return conv_of_patches_reference(patches, conv)
    weight = conv.weight
    result = functional.linear(patches.flatten(1), weight.flatten(1), conv.bias)
    shape = (*result.shape, *(1,) * (weight.dim() - 2))
    viewed: torch.Tensor = torch.ops.aten._unsafe_view(result, shape)  # no other code has `result`
    return viewed


def conv_of_patches_reference(patches: torch.Tensor, conv: Any) -> torch.Tensor:
    """Call the layer."""
    result: torch.Tensor = conv(patches)
    return result


def conv_of_patches_implementation(patches: torch.Tensor, conv: Any) -> str:
    """Name the implementation for these arguments: "matrix-product" or "reference"."""
    kind = type(conv)
    if kind not in _CONVOLUTIONS or not is_plain(conv, kind) or is_transformed():
        return "reference"
    if not is_defined_in(
        conv._conv_forward, kind.__module__
    ):  # layers that tile images have others
        return "reference"
    weight, bias = conv.weight, conv.bias
    if not are_tensors(patches, weight) or (bias is not None and not are_tensors(bias)):
        return "reference"
    if patches.dim() != weight.dim() or patches.shape[1:] != weight.shape[1:]:
        return "reference"
    if not _is_product(conv) or not _are_multiplied(patches, weight, bias):
        return "reference"
    are_contiguous = patches.is_contiguous() and weight.is_contiguous()
    return "matrix-product" if are_contiguous and patches.numel() else "reference"


def _is_product(conv: Any) -> bool:
    """Return whether a layer neither pads nor dilates, nor divides its channels into groups."""
    padding = conv.padding
    pads = padding != "valid" if isinstance(padding, str) else not _are_all(padding, 0)
    return not pads and _are_all(conv.dilation, 1) and conv.groups == 1


def _are_all(numbers: Any, number: int) -> bool:
    """Return whether numbers, of which a tuple has several, are all equal to a number."""
    sides = numbers if isinstance(numbers, tuple) else (numbers,)
    return all(side == number for side in sides)


def _are_multiplied(patches: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> bool:
    """Return whether the tensors have one dtype and device for which the product is as exact as the
    convolution: products of float32 that PyTorch may compute in another precision are not."""
    dtype, device = patches.dtype, patches.device
    for tensor in (weight,) if bias is None else (weight, bias):
        if tensor.dtype is not dtype or tensor.device != device:
            return False
    if dtype not in _MULTIPLIED or device.type not in ("cpu", "cuda"):
        return False
    if torch.is_autocast_enabled(device.type):
        return False
    return dtype is not torch.float32 or torch.get_float32_matmul_precision() == "highest"
