"""Dropout, residual addition and LayerNorm in one pass over memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regraft.ops.compiled_region import run_region
from regraft.ops.plain import compiles, is_plain


def dropout_add_layer_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    norm: Any,
    dropout: Any = None,
    *,
    p: float = 0.5,
    training: bool = True,
) -> torch.Tensor:
    """Return `norm(dropout(x) + residual)`; without `dropout`, the functional dropout gets `p` and
    `training`.

    Shapes: `x` and `residual` broadcast to `(..., *norm.normalized_shape)`; so does the result.
    `norm` and `dropout` are the model's own modules and not their bare weights and rates, because
    users replace or wrap modules after construction (LoRA adapters, quantisation, offloading and
    other hooks): whatever is not a plain `torch.nn.LayerNorm` or `torch.nn.Dropout` is called as
    the model calls it, so nothing is bypassed. On CUDA plain modules run as a compiled region,
    whose dropout draws other random numbers than the eager one; everywhere else the bits are those
    of the composition.
    """
    if (
        not compiles(x, residual)
        or dropout_add_layer_norm_implementation(x, residual, norm, dropout) != "torch.compile"
    ):
        return dropout_add_layer_norm_reference(x, residual, norm, dropout, p=p, training=training)
    if dropout is not None:
        p, training = dropout.p, dropout.training
    rate = p if training else 0.0  # evaluation needs one compiled function for all rates
    return run_region(
        _dropout_add_layer_norm,
        (x, residual, norm.weight, norm.bias),
        norm.normalized_shape,
        norm.eps,
        rate,
    )


def dropout_add_layer_norm_reference(
    x: torch.Tensor,
    residual: torch.Tensor,
    norm: Any,
    dropout: Any = None,
    *,
    p: float = 0.5,
    training: bool = True,
) -> torch.Tensor:
    """Compute the composition that the op replaces, with the modules called as the model calls
    them."""
    dropped = functional.dropout(x, p, training) if dropout is None else dropout(x)
    result: torch.Tensor = norm(dropped + residual)
    return result


def dropout_add_layer_norm_implementation(
    x: torch.Tensor, residual: torch.Tensor, norm: Any, dropout: Any = None
) -> str:
    """Name the implementation for these arguments: "torch.compile", "torch-native" or
    "reference"."""
    are_plain = is_plain(norm, nn.LayerNorm) and (dropout is None or is_plain(dropout, nn.Dropout))
    if torch.compiler.is_compiling() or not are_plain:
        return "reference"  # the surrounding compiler fuses by itself, and sees the hooks
    return "torch.compile" if compiles(x, residual) else "torch-native"


def _dropout_add_layer_norm(
    keep_mask: torch.Tensor | None,
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    shape: tuple[int, ...],
    eps: float,
    p: float,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Compute the region: return the norm and the mask of the dropout, drawn unless given; None for
    no dropout."""
    if keep_mask is not None:
        x = x * keep_mask * (1 / (1 - p) if p < 1 else 0.0)
    elif p > 0:
        x, keep_mask = torch.native_dropout(x, p, True)
    return functional.layer_norm(x + residual, shape, weight, bias, eps), keep_mask
