"""Softmax in float32 whose result is rounded, without the float32 tensors between."""

from __future__ import annotations

import torch
from torch.nn import functional

from regraft.ops.plain import are_tensors, is_transformed

_HALF = (torch.bfloat16, torch.float16)


def rounded_softmax(x: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """`torch.nn.functional.softmax(x, dim, dtype=torch.float32).to(dtype)`, in one pass where `x` is of this dtype.

    Shapes: the result has that of `x`. PyTorch's softmax of half precision on CPU computes over the last dimension in
    float32 and rounds once, so the tensors in float32 are not needed; sums taken in another order let about three
    results of a million round the other way. With gradients the composition runs: its backward pass reads the result
    before it was rounded. Along other dimensions the kernel rounds more than once; elsewhere than on CPU nothing has
    been measured.
    """
    if rounded_softmax_implementation(x, dim, dtype) == "torch-native":
        return functional.softmax(x, dim)
    return rounded_softmax_reference(x, dim, dtype)


def rounded_softmax_reference(x: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """The composition that the op replaces; `dtype` may be whatever `Tensor.to` takes."""
    return functional.softmax(x, dim, dtype=torch.float32).to(dtype)


def rounded_softmax_implementation(x: torch.Tensor, dim: int, dtype: torch.dtype) -> str:
    """Name of what runs for these arguments: "torch-native" or "reference"."""
    if not are_tensors(x) or x.device.type != "cpu" or x.dtype not in _HALF or dtype is not x.dtype:
        return "reference"
    if (x.requires_grad and torch.is_grad_enabled()) or is_transformed() or torch.is_autocast_enabled("cpu"):
        return "reference"
    return "torch-native" if x.dim() and dim in (-1, x.dim() - 1) else "reference"
