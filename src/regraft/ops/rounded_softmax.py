"""Softmax that computes in float32 and rounds its result, without intermediate tensors in
float32."""

from __future__ import annotations

import torch
from torch.nn import functional

from regraft.ops.plain import are_tensors, is_transformed

_HALF_DTYPES = (torch.bfloat16, torch.float16)


def rounded_softmax(x: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """Return `torch.nn.functional.softmax(x, dim, dtype=torch.float32).to(dtype)`, in one pass if
    `x` has this dtype.

    Shapes: the result has the shape of `x`. PyTorch's softmax of half precision on CPU computes
    over the last dimension in float32 and rounds once, so the tensors in float32 are not needed;
    because it sums in another order, about three results of a million round the other way. With
    gradients the composition runs, because its backward pass reads the result before rounding. So
    it does along other dimensions, where the kernel rounds more than once, and on other devices
    than CPU, where nothing has been measured.
    """
    if rounded_softmax_implementation(x, dim, dtype) == "torch-native":
        return functional.softmax(x, dim)
    return rounded_softmax_reference(x, dim, dtype)


def rounded_softmax_reference(x: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """Compute the composition that the op replaces; `dtype` may be any argument of `Tensor.to`."""
    return functional.softmax(x, dim, dtype=torch.float32).to(dtype)


def rounded_softmax_implementation(x: torch.Tensor, dim: int, dtype: torch.dtype) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    if (
        not are_tensors(x)
        or x.device.type != "cpu"
        or x.dtype not in _HALF_DTYPES
        or dtype is not x.dtype
    ):
        return "reference"
    if (
        (x.requires_grad and torch.is_grad_enabled())
        or is_transformed()
        or torch.is_autocast_enabled("cpu")
    ):
        return "reference"
    return "torch-native" if x.dim() and dim in (-1, x.dim() - 1) else "reference"
