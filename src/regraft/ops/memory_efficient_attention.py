"""The core of attention by xFormers, if it is installed and takes the arguments; else by
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
from regraft.ops.masked_rows import attend_with_masked_rows
from regraft.ops.plain import differentiable_once, library_function


def memory_efficient_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    keep: torch.Tensor | None = None,
    fill: torch.Tensor | float | None = None,
    softmax: Any = None,
    dropout: Any = None,
    p: float = 0.0,
    training: bool = False,
    scale: float = 1.0,
    divisor: float = 1.0,
    factor: float = 1.0,
) -> torch.Tensor:
    """Return the result of `attention`, by `xformers.ops.memory_efficient_attention`.

    The arguments and shapes are those of `attention`. xFormers takes float32 and half precision on
    CUDA, tensors `(batch, heads, length, size)`, and a mask that needs no gradient; any other
    arguments, and all arguments where it is not installed, run as `attention` does.
    """
    scales = (scale, divisor, factor)
    name = memory_efficient_attention_implementation(
        query,
        key,
        value,
        mask=mask,
        keep=keep,
        fill=fill,
        softmax=softmax,
        dropout=dropout,
        scales=scales,
    )
    kernel = _xformers_kernel()
    if name != "xformers" or kernel is None:
        return attention(
            query,
            key,
            value,
            mask=mask,
            keep=keep,
            fill=fill,
            softmax=softmax,
            dropout=dropout,
            p=p,
            training=training,
            scale=scale,
            divisor=divisor,
            factor=factor,
        )
    bias, rate = mask_and_rate(query, mask, keep, fill, dropout, p if training else 0.0)
    total_scale = scale / divisor / factor

    def run_kernel(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        return through_xformers(kernel, query, key, value, bias, rate, total_scale)

    if bias is None:
        return run_kernel(query, key, value)
    fill_mask = None if keep is None else ~keep
    return attend_with_masked_rows(
        run_kernel, query, key, value, bias, fill_mask, mask is not None, total_scale, rate
    )


def through_xformers(
    kernel: Callable[..., torch.Tensor],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    p: float,
    scale: float,
) -> torch.Tensor:
    """Call xFormers' kernel on the tensors `(batch, heads, length, size)`; the result has the same
    layout.

    The kernel itself takes `(batch, length, heads, size)`, and a mask of the scores' full shape,
    whose rows in memory are padded to a multiple of 8 elements.

    Source: https://facebookresearch.github.io/xformers/components/ops.html
    """
    if mask is not None:
        shape = (*query.shape[:-1], key.shape[-2])
        padded = mask.new_empty((*shape[:-1], (shape[-1] + 7) // 8 * 8))
        mask = padded[..., : shape[-1]].copy_(mask.expand(shape))
    query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
    result = kernel(query, key, value, attn_bias=mask, p=p, scale=scale)
    return differentiable_once(result).transpose(1, 2).contiguous()


memory_efficient_attention_reference = attention_reference


def memory_efficient_attention_implementation(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    keep: torch.Tensor | None = None,
    fill: torch.Tensor | float | None = None,
    softmax: Any = None,
    dropout: Any = None,
    scales: tuple[Any, ...] = (),
) -> str:
    """Name the implementation for these arguments: "xformers", "torch-native" or "reference"."""
    name = attention_implementation(
        query,
        key,
        value,
        mask=mask,
        keep=keep,
        fill=fill,
        softmax=softmax,
        dropout=dropout,
        scales=scales,
    )
    fits = name == "torch-native" and query.device.type == "cuda" and query.dim() == 4
    mask_is_constant = not any(
        isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in (mask, fill)
    )
    fits = fits and mask_is_constant and query.dtype != torch.float64
    return "xformers" if fits and _xformers_kernel() is not None else name


def _xformers_kernel() -> Callable[..., torch.Tensor] | None:
    """Return xFormers' kernel; None where it is not installed or does not load."""
    return library_function("xformers.ops", "memory_efficient_attention")
