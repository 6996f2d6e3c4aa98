"""The core of attention (scores, softmax, dropout and weighted sum) without the matrix of weights
in memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regraft.ops.causal_masks import is_causal
from regraft.ops.masked_rows import attend_with_masked_rows
from regraft.ops.plain import NUMBERS, are_overridden, is_plain, is_transformed


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    keep: torch.Tensor | None = None,
    fill: torch.Tensor | float | None = None,
    dropout: Any = None,
    p: float = 0.0,
    training: bool = False,
    scale: float = 1.0,
    divisor: float = 1.0,
    factor: float = 1.0,
    softmax: Any = None,
) -> torch.Tensor:
    """Return `dropout(softmax(query @ key.transpose(-1, -2) * scale / divisor / factor + mask, -1))
    @ value`.

    Shapes: `query` is `(..., L, E)`, `key` `(..., S, E)`, `value` `(..., S, V)`, the result `(...,
    L, V)`. `mask` is added to the scores and broadcasts to `(..., L, S)`, as does the boolean
    `keep`: scores where `keep` is false become `fill`, by default the lowest number of the dtype,
    before the mask is added. `dropout` and `softmax` are the model's own modules; without a
    dropout, `p` and `training` are those of the functional dropout. Arguments that
    `scaled_dot_product_attention` does not take as the original does (a dropout or softmax that is
    not a plain one of `torch.nn`, inputs of several dtypes, a scale or fill that is a tensor, a
    fill above the lowest number) run as the composition, and so do half precision on CPU and masks
    in a traced call with gradients on CPU, where the composition is faster.
    """
    scales = (scale, divisor, factor)
    implementation = attention_implementation(
        query,
        key,
        value,
        mask=mask,
        keep=keep,
        fill=fill,
        dropout=dropout,
        scales=scales,
        softmax=softmax,
    )
    if implementation != "torch-native":
        return attention_reference(
            query,
            key,
            value,
            mask=mask,
            keep=keep,
            fill=fill,
            dropout=dropout,
            p=p,
            training=training,
            scale=scale,
            divisor=divisor,
            factor=factor,
            softmax=softmax,
        )
    total_scale = scale / divisor / factor
    bias, rate = mask_and_rate(query, mask, keep, fill, dropout, p if training else 0.0)
    if bias is None:
        result = functional.scaled_dot_product_attention(
            query, key, value, dropout_p=rate, scale=total_scale
        )
        return result.contiguous()  # like the product in the composition

    def kernel(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        bias: torch.Tensor | None = None,
        causal: bool = False,
    ) -> torch.Tensor:
        return functional.scaled_dot_product_attention(
            query, key, value, bias, rate, is_causal=causal, scale=total_scale
        )

    if is_causal(query, key, value, bias, total_scale):
        return kernel(query, key, value, causal=True).contiguous()
    fill_mask = None if keep is None else ~keep
    result = attend_with_masked_rows(
        kernel, query, key, value, bias, fill_mask, mask is not None, total_scale, rate
    )
    return result.contiguous()


def mask_and_rate(
    query: torch.Tensor,
    mask: torch.Tensor | None,
    keep: torch.Tensor | None,
    fill: torch.Tensor | float | None,
    dropout: Any,
    rate: float,
) -> tuple[torch.Tensor | None, float]:
    """Return the mask to add to the scores, None for no mask, and the rate of dropout in this call.

    The mask also replaces `keep` and `fill`: a score is lost in rounding when the lowest number is
    added to it. `dropout` is the model's own module; without it, the result has the given `rate`.
    """
    if dropout is not None:
        rate = dropout.p if dropout.training else 0.0
    if keep is not None:
        kept_bias = (
            torch.zeros((), dtype=query.dtype, device=query.device) if mask is None else mask
        )
        mask = torch.where(
            keep, kept_bias, kept_bias + (torch.finfo(query.dtype).min if fill is None else fill)
        )
    return mask, rate


def attention_reference(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    keep: torch.Tensor | None = None,
    fill: torch.Tensor | float | None = None,
    dropout: Any = None,
    p: float = 0.0,
    training: bool = False,
    scale: float = 1.0,
    divisor: float = 1.0,
    factor: float = 1.0,
    softmax: Any = None,
) -> torch.Tensor:
    """Compute the composition that the op replaces, with the dropout and the softmax called as the
    model calls them."""
    scores = torch.matmul(query, key.transpose(-1, -2)) * scale / divisor / factor
    if keep is not None:
        lowest = torch.finfo(scores.dtype).min if fill is None else fill
        scores = torch.where(
            keep, scores, torch.as_tensor(lowest, dtype=scores.dtype, device=scores.device)
        )
    if mask is not None:
        scores = scores + mask
    weights = functional.softmax(scores, dim=-1) if softmax is None else softmax(scores)
    weights = weights.to(value.dtype)
    dropped = functional.dropout(weights, p, training) if dropout is None else dropout(weights)
    return torch.matmul(dropped, value)


def attention_implementation(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    keep: torch.Tensor | None = None,
    fill: torch.Tensor | float | None = None,
    dropout: Any = None,
    scales: tuple[Any, ...] = (),
    softmax: Any = None,
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    if not _are_tensors(query, key, value, mask, keep):
        return "reference"
    if dropout is not None and not is_plain(dropout, nn.Dropout):
        return "reference"
    if softmax is not None and not (is_plain(softmax, nn.Softmax) and softmax.dim == -1):
        return "reference"
    fits = (
        _are_scales_constant(scales)
        and _kernel_takes_dtype(query, key, value, mask)
        and _do_shapes_fit(query, key, value, mask, keep)
        and (keep is None or _is_fill_lowest(fill, query))
        and not (
            (mask is not None or keep is not None) and _is_traced_for_gradients(query, key, value)
        )
    )
    return "torch-native" if fits else "reference"


def _is_traced_for_gradients(*tensors: torch.Tensor) -> bool:
    """Return whether the call is traced on CPU with gradients.

    Then the elements of a mask cannot be read, and what the kernel needs for rows without keys in
    the backward pass (`masked_rows.py`) takes longer than the composition.
    """
    if not tensors[0].is_cpu or not is_transformed() or not torch.is_grad_enabled():
        return False
    return any(tensor.requires_grad for tensor in tensors)


def _are_tensors(*operands: Any) -> bool:
    """Return whether all operands are tensors or None, and functions of PyTorch are its own for
    them."""
    for operand in operands:
        if operand is not None and not isinstance(operand, torch.Tensor):
            return False
    return not are_overridden(*operands)


def _are_scales_constant(scales: tuple[Any, ...]) -> bool:
    """Return whether all scales are numbers, and all but the first, which are divisors, are not
    zero."""
    for number in scales:
        if not isinstance(number, NUMBERS):
            return False
    return all(scales[1:])


def _is_fill_lowest(fill: Any, query: torch.Tensor) -> bool:
    """Return whether a fill is None or a number of at most the lowest one of the query's dtype."""
    if fill is None:
        return True
    return isinstance(fill, NUMBERS) and fill <= torch.finfo(query.dtype).min


def _kernel_takes_dtype(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
) -> bool:
    """Return whether the tensors have one floating point dtype for which the kernel pays, outside
    of autocast."""
    dtype, device = query.dtype, query.device.type
    if mask is not None and mask.dtype != dtype:
        return False
    if not key.dtype == value.dtype == dtype or not dtype.is_floating_point:
        return False
    if torch.is_autocast_enabled(device):
        return False
    # in half precision on CPU the kernel is slower than the composition, and less exact
    return device != "cpu" or dtype in (torch.float32, torch.float64)


def _do_shapes_fit(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    keep: torch.Tensor | None,
) -> bool:
    """Return whether query, key and value have equal leading sizes, the query has elements, and the
    masks broadcast to the scores."""
    shape, key_shape, value_shape = query.shape, key.shape, value.shape
    if not len(shape) == len(key_shape) == len(value_shape) >= 3:
        return False
    if not shape[:-2] == key_shape[:-2] == value_shape[:-2] or not query.numel():
        return False
    if mask is None and keep is None:
        return True
    scores_shape = (*shape[:-1], key_shape[-2])
    return all(mask is None or _mask_fits(mask, scores_shape) for mask in (mask, keep))


def _mask_fits(mask: torch.Tensor, scores: tuple[int, ...]) -> bool:
    """Return whether a mask of two dimensions or more broadcasts to the scores without making them
    larger."""
    if not 2 <= mask.dim() <= len(scores):
        return False
    return all(
        mask_size in (1, scores_size)
        for mask_size, scores_size in zip(mask.shape[::-1], scores[::-1], strict=False)
    )
