"""The core of attention by flash-attn, if it is installed and takes the arguments; else by
`attention`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from regraft.ops.attention import (
    attention,
    attention_implementation,
    attention_reference,
    mask_and_rate,
)
from regraft.ops.plain import differentiable_once, library_function

_MAX_HEAD_SIZE = 256


def flash_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    softmax: Any = None,
    dropout: Any = None,
    p: float = 0.0,
    training: bool = False,
    scale: float = 1.0,
    divisor: float = 1.0,
    factor: float = 1.0,
) -> torch.Tensor:
    """Return the result of `attention`, by `flash_attn.flash_attn_func`.

    The arguments and shapes are those of `attention`. flash-attn takes half precision on CUDA,
    tensors `(batch, heads, length, size)` with a size of up to 256 that is equal for query, key and
    value, and no mask; any other arguments, and all arguments where it is not installed, run as
    `attention` does.
    """
    scales = (scale, divisor, factor)
    name = flash_attention_implementation(
        query, key, value, mask=mask, softmax=softmax, dropout=dropout, scales=scales
    )
    kernel = _flash_attention_kernel()
    if name != "flash-attn" or kernel is None:
        return attention(
            query,
            key,
            value,
            mask=mask,
            softmax=softmax,
            dropout=dropout,
            p=p,
            training=training,
            scale=scale,
            divisor=divisor,
            factor=factor,
        )
    _, rate = mask_and_rate(query, None, None, None, dropout, p if training else 0.0)
    return through_flash_attn(kernel, query, key, value, rate, scale / divisor / factor)


def through_flash_attn(
    kernel: Callable[..., torch.Tensor],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    p: float,
    scale: float,
) -> torch.Tensor:
    """Call flash-attn's kernel on tensors `(batch, heads, length, size)`; the result has the same
    layout.

    The kernel itself takes `(batch, length, heads, size)`.

    Source: https://github.com/Dao-AILab/flash-attention, `flash_attn/flash_attn_interface.py`
    """
    query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
    result = kernel(query, key, value, dropout_p=p, softmax_scale=scale, causal=False)
    return differentiable_once(result).transpose(1, 2).contiguous()


flash_attention_reference = attention_reference


def flash_attention_implementation(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    softmax: Any = None,
    dropout: Any = None,
    scales: tuple[Any, ...] = (),
) -> str:
    """Name the implementation for these arguments: "flash-attn", "torch-native" or "reference"."""
    name = attention_implementation(
        query, key, value, mask=mask, softmax=softmax, dropout=dropout, scales=scales
    )
    if name != "torch-native" or mask is not None:
        return name
    shapes_fit = query.dim() == 4 and query.shape[:2] == key.shape[:2] == value.shape[:2]
    shapes_fit = (
        shapes_fit and query.shape[-1] == key.shape[-1] == value.shape[-1] <= _MAX_HEAD_SIZE
    )
    fits = shapes_fit and query.dtype in (torch.float16, torch.bfloat16)
    return (
        "flash-attn"
        if fits and query.device.type == "cuda" and _flash_attention_kernel() is not None
        else name
    )


def _flash_attention_kernel() -> Callable[..., torch.Tensor] | None:
    """Return flash-attn's kernel; None where it is not installed or does not load."""
    return library_function("flash_attn", "flash_attn_func")
