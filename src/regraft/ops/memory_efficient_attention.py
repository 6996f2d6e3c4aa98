"""The core of attention through xFormers, where it is installed and takes the arguments; else as `attention`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from regraft.ops.attention import attention, attention_implementation, attention_reference, mask_and_rate
from regraft.ops.masked_rows import attend_with_masked_rows
from regraft.ops.plain import differentiable_once, library_function


def memory_efficient_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, mask: torch.Tensor | None = None,
    keep: torch.Tensor | None = None, fill: torch.Tensor | float | None = None, dropout: Any = None, p: float = 0.0,
    training: bool = False, scale: float = 1.0, divisor: float = 1.0, factor: float = 1.0,
) -> torch.Tensor:  # fmt: skip
    """What `attention` computes, with the same arguments and shapes, by `xformers.ops.memory_efficient_attention`.

    xFormers takes float32 and half precision on CUDA, `(batch, heads, length, size)`, and a mask that needs no
    gradient; anything else, also where it is not installed, runs as `attention` does.
    """
    scales = (scale, divisor, factor)
    name = memory_efficient_attention_implementation(
        query, key, value, mask=mask, keep=keep, fill=fill, dropout=dropout, scales=scales
    )
    kernel = _xformers_kernel()
    if name != "xformers" or kernel is None:
        return attention(
            query, key, value, mask=mask, keep=keep, fill=fill, dropout=dropout, p=p, training=training, scale=scale,
            divisor=divisor, factor=factor,
        )  # fmt: skip
    bias, rate = mask_and_rate(query, mask, keep, fill, dropout, p if training else 0.0)
    factors = scale / divisor / factor

    def run(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        return through_xformers(kernel, query, key, value, bias, rate, factors)

    if bias is None:
        return run(query, key, value)
    filled = None if keep is None else ~keep
    return attend_with_masked_rows(run, query, key, value, bias, filled, mask is not None, factors, rate)


def through_xformers(
    kernel: Callable[..., torch.Tensor], query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    mask: torch.Tensor | None, p: float, scale: float,
) -> torch.Tensor:  # fmt: skip
    """Call xFormers' kernel: `(batch, length, heads, size)`, a mask of the scores' full shape in rows of 8 elements.

    Source: https://facebookresearch.github.io/xformers/components/ops.html
    """
    if mask is not None:
        shape = (*query.shape[:-1], key.shape[-2])
        rows = mask.new_empty((*shape[:-1], (shape[-1] + 7) // 8 * 8))
        mask = rows[..., : shape[-1]].copy_(mask.expand(shape))
    query, key, value = (one.transpose(1, 2) for one in (query, key, value))
    result = kernel(query, key, value, attn_bias=mask, p=p, scale=scale)
    return differentiable_once(result).transpose(1, 2).contiguous()


memory_efficient_attention_reference = attention_reference


def memory_efficient_attention_implementation(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, mask: torch.Tensor | None = None,
    keep: torch.Tensor | None = None, fill: torch.Tensor | float | None = None, dropout: Any = None,
    scales: tuple[Any, ...] = (),
) -> str:  # fmt: skip
    """Name of what runs for these arguments: "xformers", "torch-native" or "reference"."""
    name = attention_implementation(query, key, value, mask=mask, keep=keep, fill=fill, dropout=dropout, scales=scales)
    fits = name == "torch-native" and query.device.type == "cuda" and query.dim() == 4
    constant = not any(isinstance(one, torch.Tensor) and one.requires_grad for one in (mask, fill))
    fits = fits and constant and query.dtype != torch.float64
    return "xformers" if fits and _xformers_kernel() is not None else name


def _xformers_kernel() -> Callable[..., torch.Tensor] | None:
    return library_function("xformers.ops", "memory_efficient_attention")
