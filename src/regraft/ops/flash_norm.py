"""Dropout, residual addition and LayerNorm by flash-attn, if it takes the arguments; else by the
composition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from regraft.ops.dropout_add_layer_norm import (
    dropout_add_layer_norm,
    dropout_add_layer_norm_implementation,
    dropout_add_layer_norm_reference,
)
from regraft.ops.plain import differentiable_once, is_plain, library_function, on_one_gpu

_MAX_BYTES = 65536  # bytes of one row that the kernel takes


flash_add_layer_norm_reference = dropout_add_layer_norm_reference


def flash_add_layer_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    norm: Any,
    dropout: Any = None,
    *,
    p: float = 0.0,
    training: bool = False,
) -> torch.Tensor:
    """Return `norm(dropout(x) + residual)`, by `flash_attn.ops.triton.layer_norm.layer_norm_fn`.

    Shapes: `x`, `residual` and the result are `(..., H)`. `norm` and `dropout` are the model's own
    modules; without `dropout`, the dropout is that of `torch.nn.functional` with `p` and
    `training`. Arguments that the kernel does not take, and all arguments where flash-attn is not
    installed, run as `dropout_add_layer_norm` does.
    """
    if (
        flash_add_layer_norm_implementation(x, residual, norm, dropout, p=p, training=training)
        != "flash-attn"
    ):
        return dropout_add_layer_norm(x, residual, norm, dropout, p=p, training=training)
    normed, _ = norm_through_flash_attn(
        _flash_norm_kernel(), x, residual, norm, _dropout_rate(dropout, p, training)
    )
    return normed


def flash_add_layer_norm_pair(
    x: torch.Tensor,
    residual: torch.Tensor,
    norm: Any,
    dropout: Any = None,
    *,
    p: float = 0.0,
    training: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `dropout(x) + residual` and its `norm`, in this order, for the arguments of
    `flash_add_layer_norm`."""
    if (
        flash_add_layer_norm_pair_implementation(x, residual, norm, dropout, p=p, training=training)
        != "flash-attn"
    ):
        return flash_add_layer_norm_pair_reference(
            x, residual, norm, dropout, p=p, training=training
        )
    normed, total = norm_through_flash_attn(
        _flash_norm_kernel(), x, residual, norm, _dropout_rate(dropout, p, training)
    )
    return total, normed


def flash_add_layer_norm_pair_reference(
    x: torch.Tensor,
    residual: torch.Tensor,
    norm: Any,
    dropout: Any = None,
    *,
    p: float = 0.0,
    training: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the composition that the op replaces, with the modules called as the model calls
    them."""
    total = (nn.functional.dropout(x, p, training) if dropout is None else dropout(x)) + residual
    return total, norm(total)


def norm_through_flash_attn(
    kernel: Callable[..., tuple[torch.Tensor, torch.Tensor]],
    x: torch.Tensor,
    residual: torch.Tensor,
    norm: Any,
    p: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the norm and the sum, by flash-attn's kernel, which normalises the sum before rounding
    it.

    Source: https://github.com/Dao-AILab/flash-attention, `flash_attn/ops/triton/layer_norm.py`
    """
    results = kernel(
        x, norm.weight, norm.bias, residual=residual, eps=float(norm.eps), dropout_p=p, prenorm=True
    )
    normed, total = map(differentiable_once, results)
    return normed, total


def flash_add_layer_norm_implementation(
    x: torch.Tensor,
    residual: torch.Tensor,
    norm: Any,
    dropout: Any = None,
    *,
    p: float = 0.0,
    training: bool = False,
) -> str:
    """Name the implementation for these arguments: "flash-attn", or that of
    `dropout_add_layer_norm`."""
    name = flash_add_layer_norm_pair_implementation(
        x, residual, norm, dropout, p=p, training=training
    )
    return (
        name
        if name == "flash-attn"
        else dropout_add_layer_norm_implementation(x, residual, norm, dropout)
    )


def flash_add_layer_norm_pair_implementation(
    x: torch.Tensor,
    residual: torch.Tensor,
    norm: Any,
    dropout: Any = None,
    *,
    p: float = 0.0,
    training: bool = False,
) -> str:
    """Name the implementation for these arguments: "flash-attn" or "reference"."""
    if not is_plain(norm, nn.LayerNorm) or len(norm.normalized_shape) != 1 or norm.weight is None:
        return "reference"
    if (
        not (dropout is None or is_plain(dropout, nn.Dropout))
        or not 0 <= _dropout_rate(dropout, p, training) < 1
    ):
        return "reference"
    fits = on_one_gpu(
        x, residual, *(parameter for parameter in (norm.weight, norm.bias) if parameter is not None)
    )
    fits = fits and x.shape == residual.shape and x.shape[-1:] == norm.weight.shape
    fits = fits and x.shape[-1] * x.element_size() <= _MAX_BYTES
    return "flash-attn" if fits and _flash_norm_kernel() is not None else "reference"


def _dropout_rate(dropout: Any, p: float, training: bool) -> float:
    """Return the rate of dropout in this call: that of the module, or `p` without a module; 0.0 in
    evaluation."""
    if dropout is not None:
        p, training = dropout.p, dropout.training
    return p if training else 0.0


def _flash_norm_kernel() -> Any:
    """Return flash-attn's kernel; None where it is not installed or does not load."""
    return library_function("flash_attn.ops.triton.layer_norm", "layer_norm_fn")
