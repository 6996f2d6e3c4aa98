"""Dropout, residual addition and LayerNorm in one pass over memory."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regraft.ops.plain import compiles, is_plain


def dropout_add_layer_norm(
    x: torch.Tensor, residual: torch.Tensor, norm: Any, *, p: float, training: bool
) -> torch.Tensor:
    """`norm(dropout(x, p, training) + residual)`.

    Shapes: `x` and `residual` broadcast to `(..., *norm.normalized_shape)`; so does the result. `norm` is the model's
    own module and not its bare weights, because users replace or wrap modules after construction (LoRA adapters,
    quantisation, offloading and other hooks): whatever is not a plain `torch.nn.LayerNorm` is called like the
    original does, so nothing is bypassed. On CUDA a plain one runs as a compiled region, whose dropout draws other
    random numbers than the eager one; everywhere else the bits are those of the original.
    """
    if dropout_add_layer_norm_implementation(x, residual, norm) != "torch.compile":
        return dropout_add_layer_norm_reference(x, residual, norm, p=p, training=training)
    rate = p if training else 0.0  # one compiled variant less for each rate in evaluation
    result: torch.Tensor = _compiled_dropout_add_layer_norm()(
        x, residual, norm.normalized_shape, norm.weight, norm.bias, norm.eps, rate, training
    )
    return result


def dropout_add_layer_norm_reference(
    x: torch.Tensor, residual: torch.Tensor, norm: Any, *, p: float, training: bool
) -> torch.Tensor:
    """The composition that the op replaces, with the module called as the model calls it."""
    result: torch.Tensor = norm(functional.dropout(x, p, training) + residual)
    return result


def dropout_add_layer_norm_implementation(x: torch.Tensor, residual: torch.Tensor, norm: Any) -> str:
    """Name of what runs for these arguments: "torch.compile", "torch-native" or "reference"."""
    if torch.compiler.is_compiling() or not is_plain(norm, nn.LayerNorm):
        return "reference"  # the compiler around it fuses, and sees the hooks
    return "torch.compile" if compiles(x, residual) else "torch-native"


@functools.cache
def _compiled_dropout_add_layer_norm() -> Any:
    return torch.compile(_dropout_add_layer_norm, dynamic=True)


def _dropout_add_layer_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    shape: tuple[int, ...],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    p: float,
    training: bool,
) -> torch.Tensor:
    return functional.layer_norm(functional.dropout(x, p, training) + residual, shape, weight, bias, eps)
