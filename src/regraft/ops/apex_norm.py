"""RMSNorm and LayerNorm by NVIDIA's Apex, if it is installed and takes the arguments; else by the
composition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from regraft.ops.layer_norm import layer_norm_reference
from regraft.ops.plain import differentiable_once, is_plain, library_function, on_one_gpu
from regraft.ops.rms_norm import rms_norm_reference

apex_rms_norm_reference = rms_norm_reference
apex_layer_norm_reference = layer_norm_reference


def apex_rms_norm(x: torch.Tensor, *, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Return `rms_norm` with its weight, by
    `apex.normalization.fused_layer_norm.fused_rms_norm_affine`.

    Shapes: `x` is `(..., H)`, `weight` `(H,)`, the result as `x`. Both round to the dtype of `x`
    before the weight multiplies. Apex takes float32 and half precision on CUDA, with a weight of
    the dtype of `x`; any other arguments, and all arguments where it is not installed, run as the
    composition.
    """
    kernel = _apex_norm_kernel("fused_rms_norm_affine")
    if apex_rms_norm_implementation(x, weight=weight) != "apex" or kernel is None:
        return rms_norm_reference(x, weight=weight, eps=eps)
    return rms_norm_through_apex(kernel, x, weight, eps)


def rms_norm_through_apex(
    kernel: Callable[..., torch.Tensor], x: torch.Tensor, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    """Call Apex' kernel. Source: https://github.com/NVIDIA/apex,
    `apex/normalization/fused_layer_norm.py`"""
    return differentiable_once(kernel(x, weight, list(weight.shape), eps=float(eps)))


def apex_rms_norm_implementation(x: torch.Tensor, *, weight: torch.Tensor) -> str:
    """Name the implementation for these arguments: "apex" or "reference"."""
    fits = on_one_gpu(x, weight) and weight.shape == x.shape[-1:]
    return (
        "apex" if fits and _apex_norm_kernel("fused_rms_norm_affine") is not None else "reference"
    )


def apex_layer_norm(x: torch.Tensor, norm: Any) -> torch.Tensor:
    """Return `norm(x)`, by `apex.normalization.fused_layer_norm.fused_layer_norm_affine`.

    Shapes: `x` and the result are `(..., *norm.normalized_shape)`. `norm` is the model's own
    module: any module but a plain `torch.nn.LayerNorm` with weight and bias is called as the model
    calls it. So it is in half precision, where Apex rounds before the weight multiplies, and
    PyTorch rounds once, at the end.
    """
    kernel = _apex_norm_kernel("fused_layer_norm_affine")
    if apex_layer_norm_implementation(x, norm) != "apex" or kernel is None:
        return layer_norm_reference(x, norm)
    return layer_norm_through_apex(kernel, x, norm)


def layer_norm_through_apex(
    kernel: Callable[..., torch.Tensor], x: torch.Tensor, norm: Any
) -> torch.Tensor:
    """Call Apex' kernel. Source: https://github.com/NVIDIA/apex,
    `apex/normalization/fused_layer_norm.py`"""
    result = kernel(x, norm.weight, norm.bias, list(norm.normalized_shape), eps=float(norm.eps))
    return differentiable_once(result)


def apex_layer_norm_implementation(x: torch.Tensor, norm: Any) -> str:
    """Name the implementation for these arguments: "apex" or "reference"."""
    if not is_plain(norm, nn.LayerNorm) or norm.weight is None or norm.bias is None:
        return "reference"
    shape = norm.normalized_shape
    fits = on_one_gpu(x, norm.weight, norm.bias) and x.dtype == torch.float32
    fits = fits and x.shape[-len(shape) :] == torch.Size(shape)
    return (
        "apex" if fits and _apex_norm_kernel("fused_layer_norm_affine") is not None else "reference"
    )


def _apex_norm_kernel(name: str) -> Callable[..., torch.Tensor] | None:
    """Return a kernel of NVIDIA's Apex; None without its CUDA extension, as in the other package
    named apex."""
    return library_function("apex.normalization.fused_layer_norm", name, "fused_layer_norm_cuda")
