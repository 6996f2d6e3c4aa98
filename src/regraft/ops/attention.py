"""The core of attention: scores, softmax, dropout and the weighted sum without the matrix of weights in memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regraft.ops.masked_rows import attend_with_masked_rows
from regraft.ops.plain import is_plain


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, mask: torch.Tensor | None = None,
    keep: torch.Tensor | None = None, fill: torch.Tensor | float | None = None, dropout: Any = None, p: float = 0.0,
    training: bool = False, scale: float = 1.0, divisor: float = 1.0, factor: float = 1.0,
) -> torch.Tensor:  # fmt: skip
    """`dropout(softmax(query @ key.transpose(-1, -2) * scale / divisor / factor + mask, -1)) @ value`.

    Shapes: `query` is `(..., L, E)`, `key` `(..., S, E)`, `value` `(..., S, V)`, the result `(..., L, V)`. `mask` is
    added to the scores and broadcasts to `(..., L, S)`; so does the boolean `keep`: scores where it is false become
    `fill` before the mask is added. `dropout` is the model's own module, else `p` and `training` are those of the
    functional dropout. What `scaled_dot_product_attention` does not take as the original would (a dropout that is not
    a plain `torch.nn.Dropout`, inputs of several dtypes, a scale or fill that is a tensor, a fill above the lowest
    number) runs as the composition, and so does half precision on CPU, where that is faster.
    """
    scales = (scale, divisor, factor)
    implementation = attention_implementation(
        query, key, value, mask=mask, keep=keep, fill=fill, dropout=dropout, scales=scales
    )
    if implementation != "torch-native":
        return attention_reference(
            query, key, value, mask=mask, keep=keep, fill=fill, dropout=dropout, p=p, training=training, scale=scale,
            divisor=divisor, factor=factor,
        )  # fmt: skip
    factors = scale / divisor / factor
    bias, rate = mask_and_rate(query, mask, keep, fill, dropout, p if training else 0.0)

    def kernel(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=bias, dropout_p=rate, scale=factors
        )

    if bias is None:
        return kernel(query, key, value).contiguous()  # as the product is
    filled = None if keep is None else ~keep
    result = attend_with_masked_rows(kernel, query, key, value, bias, filled, mask is not None, factors, rate)
    return result.contiguous()


def mask_and_rate(
    query: torch.Tensor, mask: torch.Tensor | None, keep: torch.Tensor | None, fill: torch.Tensor | float | None,
    dropout: Any, rate: float,
) -> tuple[torch.Tensor | None, float]:  # fmt: skip
    """The one mask to add, and the rate of dropout in this call.

    The mask also does what `keep` and `fill` do: a score added to the lowest number is lost in it. `dropout` is the
    model's own module, else `rate` holds.
    """
    if dropout is not None:
        rate = dropout.p if dropout.training else 0.0
    if keep is not None:
        kept = torch.zeros((), dtype=query.dtype, device=query.device) if mask is None else mask
        mask = torch.where(keep, kept, kept + (torch.finfo(query.dtype).min if fill is None else fill))
    return mask, rate


def attention_reference(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, mask: torch.Tensor | None = None,
    keep: torch.Tensor | None = None, fill: torch.Tensor | float | None = None, dropout: Any = None, p: float = 0.0,
    training: bool = False, scale: float = 1.0, divisor: float = 1.0, factor: float = 1.0,
) -> torch.Tensor:  # fmt: skip
    """The composition that the op replaces, with the dropout called as the model calls it."""
    scores = torch.matmul(query, key.transpose(-1, -2)) * scale / divisor / factor
    if keep is not None:
        lowest = torch.finfo(scores.dtype).min if fill is None else fill
        scores = torch.where(keep, scores, torch.as_tensor(lowest, dtype=scores.dtype, device=scores.device))
    if mask is not None:
        scores = scores + mask
    weights = functional.softmax(scores, dim=-1).to(value.dtype)
    dropped = functional.dropout(weights, p, training) if dropout is None else dropout(weights)
    return torch.matmul(dropped, value)


def attention_implementation(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, mask: torch.Tensor | None = None,
    keep: torch.Tensor | None = None, fill: torch.Tensor | float | None = None, dropout: Any = None,
    scales: tuple[Any, ...] = (),
) -> str:  # fmt: skip
    """Name of what runs for these arguments: "torch-native" or "reference"."""
    if not all(
        isinstance(one, torch.Tensor) for one in (query, key, value, *(m for m in (mask, keep) if m is not None))
    ):
        return "reference"
    plain = dropout is None or is_plain(dropout, nn.Dropout)
    one_dtype = len({tensor.dtype for tensor in (query, key, value, mask) if tensor is not None}) == 1
    shaped = query.dim() == key.dim() == value.dim() >= 3 and query.shape[:-2] == key.shape[:-2] == value.shape[:-2]
    shaped = shaped and all(_fits(one, (*query.shape[:-1], key.shape[-2])) for one in (mask, keep) if one is not None)
    numbers = all(isinstance(one, int | float) for one in scales) and all(scales[1:])
    floating = numbers and query.dtype.is_floating_point and not torch.is_autocast_enabled(query.device.type)
    if query.device.type == "cpu" and query.dtype not in (torch.float32, torch.float64):
        floating = False  # slower there than the composition, and less exact
    fits = plain and one_dtype and shaped and floating and query.numel()
    if fits and keep is not None and fill is not None:
        fits = isinstance(fill, int | float) and fill <= torch.finfo(query.dtype).min
    return "torch-native" if fits else "reference"


def _fits(mask: torch.Tensor, scores: tuple[int, ...]) -> bool:
    """Whether a mask broadcasts to the scores without making them larger."""
    if not 2 <= mask.dim() <= len(scores):
        return False
    return all(own in (1, size) for own, size in zip(mask.shape[::-1], scores[::-1], strict=False))
