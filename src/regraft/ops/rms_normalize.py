"""Division of rows by the root of their mean square, which on CPU takes four passes over memory
with gradients, where the composition takes twelve."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from regraft.ops.plain import are_tensors, is_transformed
from regraft.ops.row_norms import (
    are_plain_numbers,
    gradient_of,
    has_plain_gradient,
    is_row_tensor,
    is_too_small,
    weighted,
)
from regraft.ops.standardize_along import has_usual_strides

# The kernel of earlier versions rounds half precision at other places.
_HAS_RMS_KERNEL = torch.__version__ >= (2, 13)
_KERNEL_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# A norm of longer rows, which adds squares one after another, is less accurate than their mean.
_LONGEST_ROW = 2**14
_LONGEST_COLUMN = 2**10


def rms_normalize(
    x: torch.Tensor, eps: float, weight: torch.Tensor | None = None, casting: str = "none"
) -> torch.Tensor:
    """Return `x / sqrt(mean(x ** 2, -1) + eps) * weight`.

    Shapes: `x` is `(..., N)`, and `weight`, if any, is broadcast with it. `casting` says where the
    composition rounds: "rounded" computes in float32 and rounds to the dtype of `x` before the
    weight multiplies; "statistics" computes the mean in float32 and multiplies `x` as it is, in the
    wider of both dtypes; "none" computes in the dtype of `x`. On CUDA this is
    `torch.nn.functional.rms_norm` from PyTorch 2.13 on. On CPU rows are multiplied in one pass
    after that for their length, and the backward pass is written out. Small tensors, half precision
    on CPU without casts, and what is traced, compiled there or transformed, run as the composition.
    """
    if torch.jit.is_scripting():
        return rms_normalize_reference(x, eps, weight, casting)
    else:  # which TorchScript does not compile
        return _rms_normalize(x, eps, weight, casting)


def _rms_normalize(x: torch.Tensor, eps: float, weight: Any, casting: str) -> torch.Tensor:
    """Return the result of `rms_normalize` outside of TorchScript."""
    if is_too_small(x):
        return rms_normalize_reference(x, eps, weight, casting)
    implementation = rms_normalize_implementation(x, eps, weight, casting)
    if implementation == "reference":
        return rms_normalize_reference(x, eps, weight, casting)
    is_own = casting == "none" or (x.is_cuda and casting == "rounded")
    wide = x if is_own else x.to(torch.float32)
    if implementation == "rms-norm":
        normed = functional.rms_norm(wide, wide.shape[-1:], eps=eps)
    elif torch.is_grad_enabled() and wide.requires_grad:
        normed = _RmsNormalize.apply(wide, eps)
    else:
        factor = _rms_factor(wide, eps)
        is_copy = wide is not x and has_usual_strides(wide)
        normed = wide.mul_(factor) if is_copy else wide * factor
    return weighted(normed.to(x.dtype) if casting == "rounded" else normed, weight)


def rms_normalize_reference(
    x: torch.Tensor, eps: float, weight: torch.Tensor | None = None, casting: str = "none"
) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    wide = x if casting == "none" else x.to(torch.float32)
    factor = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    normed = (x if casting == "statistics" else wide) * factor
    if casting == "rounded":
        normed = normed.to(x.dtype)
    return normed if weight is None else weight * normed


def rms_normalize_implementation(
    x: torch.Tensor, eps: float, weight: torch.Tensor | None = None, casting: str = "none"
) -> str:
    """Name the implementation for these arguments: "torch-native", "rms-norm" (PyTorch's
    function) or "reference"."""
    if not are_plain_numbers(eps):
        return "reference"
    if is_row_tensor(x):
        longest = _LONGEST_ROW if x.stride(-1) == 1 else _LONGEST_COLUMN
        is_accurate = x.shape[-1] <= longest and _suits_casting(x.dtype, casting)
        return "torch-native" if is_accurate else "reference"
    return "rms-norm" if _has_rms_kernel(x, casting) else "reference"


def _suits_casting(dtype: torch.dtype, casting: str) -> bool:
    """Return whether everything is computed in one dtype, float32 or float64."""
    if casting == "none":
        return dtype is torch.float32 or dtype is torch.float64
    if casting == "statistics" and dtype is torch.float64:
        return False
    return bool(dtype.is_floating_point)


def _has_rms_kernel(x: torch.Tensor, casting: str) -> bool:
    """Return whether PyTorch has one kernel for a tensor on CUDA, that rounds as the composition or
    less often."""
    if not are_tensors(x) or not x.is_cuda or not _HAS_RMS_KERNEL or not x.dim():
        return False
    if not torch.compiler.is_compiling() and is_transformed():
        return False
    is_wide = casting == "none" and x.dtype is torch.float64
    return bool(x.numel()) and (is_wide or x.dtype in _KERNEL_DTYPES)


def _rms_factor(x: torch.Tensor, eps: float) -> torch.Tensor:
    """Return the reciprocal root of the mean square of each row."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return length.square_().div_(x.shape[-1]).add_(eps).rsqrt_()


class _RmsNormalize(torch.autograd.Function):  # type: ignore[misc]
    """Rows divided by the root of their mean square."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, eps: float) -> torch.Tensor:
        factor = _rms_factor(x, eps)
        ctx.eps = eps
        ctx.save_for_backward(x, factor)
        return x * factor

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, factor = ctx.saved_tensors
        if torch.is_grad_enabled():  # the factor has to be a function of `x` again
            eps: float = ctx.eps
            return gradient_of(lambda x: rms_normalize_reference(x, eps), x, gradient), None
        products = gradient * x
        slopes = products.sum(-1, keepdim=True) * (factor**3 / -x.shape[-1])
        if not has_plain_gradient(gradient):
            return gradient * factor + x * slopes, None
        torch.mul(x, slopes, out=products)
        return products.addcmul_(gradient, factor), None
