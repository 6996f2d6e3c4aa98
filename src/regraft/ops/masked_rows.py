"""Attention with rows in which every key is masked, which kernels do not differentiate as the
composition does."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from regraft.ops.plain import are_tensors, can_read

# A row whose largest bias is at most this has no key to attend to.
_MASKED = -1e3
# A score is lost in rounding if it is added to a float32 number of at most this.
_ABSORBING = -(2.0**28)
_CHUNK = 1 << 22  # number of scores that are computed together
_Kernel = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def attend_with_masked_rows(
    kernel: _Kernel,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor,
    fill_mask: torch.Tensor | None,
    adds_mask: bool,
    scale: float,
    rate: float = 0.0,
) -> torch.Tensor:
    """Compute `softmax(scale * query @ key.transpose(-1, -2) + bias, -1) @ value` by a kernel,
    masked rows included.

    Shapes: `query` is `(..., L, E)`, `key` `(..., S, E)`, `value` `(..., S, V)` with equal leading
    sizes; `bias` and the boolean `fill_mask` broadcast to `(..., L, S)`. Where `fill_mask` is true
    the model replaces the score by the bias, so that no gradient reaches the score. `adds_mask` is
    true if the bias also holds a mask that the model adds. `kernel(query, key, value, bias)`
    computes the attention, with dropout of the weights at `rate`.

    A kernel's backward pass recomputes the weights from the logarithm of their sum, which rounding
    swallows beside a bias such as `finfo.min`: in a row where all keys are masked, the gradients
    come out too large by a factor, the number of keys. On CPU such rows are computed by the
    composition, in chunks that the backward pass computes again. On other devices, and while a
    compiler traces, no elements are read: queries of such rows are replaced by zeros, which gives
    the weights that rounding leaves in the composition.
    """
    tensors = (query, key, value, bias)
    differentiated = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    largest_bias = bias.detach().amax(-1, keepdim=True)
    # on other devices, reading an element would wait for all work
    if bias.is_cpu and are_tensors(*tensors) and can_read():
        masked = largest_bias <= (_MASKED if differentiated else -math.inf)
        if not bool(masked.any()):
            return kernel(query, key, value, bias)
        return _replace_rows(kernel, query, key, value, bias, fill_mask, masked, scale, rate)
    lost = largest_bias <= _ABSORBING
    if differentiated and fill_mask is not None and adds_mask:
        return _composition(query, key, value, bias, fill_mask, scale, rate)
    # a row of -inf becomes NaN, as softmax gives it
    bias = torch.where(lost, bias - largest_bias, bias)
    if differentiated and fill_mask is None:
        return _attend_doubled(kernel, query, key, value, bias, lost)
    return kernel(query.masked_fill(lost, 0), key, value, bias)


def _replace_rows(
    kernel: _Kernel,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor,
    fill_mask: torch.Tensor | None,
    masked: torch.Tensor,
    scale: float,
    rate: float,
) -> torch.Tensor:
    """Run the kernel, and replace the masked rows by those of the composition; `masked` is `(..., L
    or 1, 1)`."""
    result = kernel(query, key, value, bias.masked_fill(masked, 0))
    if masked.dim() < query.dim() or masked.shape[0] == 1:
        rows = _compose_rows(query, key, value, bias, fill_mask, masked, scale, rate, result)
        return torch.where(masked, rows, result)
    batch_indices = masked.flatten(1).any(1).nonzero().flatten()  # entries of the batch
    query, key, value, bias, masked = (
        tensor.index_select(0, batch_indices) for tensor in (query, key, value, bias, masked)
    )
    if fill_mask is not None and fill_mask.dim() == query.dim() and fill_mask.shape[0] > 1:
        fill_mask = fill_mask.index_select(0, batch_indices)
    kernel_rows = result.index_select(0, batch_indices)
    rows = _compose_rows(query, key, value, bias, fill_mask, masked, scale, rate, kernel_rows)
    return result.index_copy(0, batch_indices, torch.where(masked, rows, kernel_rows))


def _compose_rows(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor,
    fill_mask: torch.Tensor | None,
    masked: torch.Tensor,
    scale: float,
    rate: float,
    result: torch.Tensor,
) -> torch.Tensor:
    """Return `result` with every row that is masked in any batch or head computed by the
    composition, in chunks."""
    is_masked_anywhere = masked.reshape(-1, masked.shape[-2]).any(0).expand(query.shape[-2])
    rows = is_masked_anywhere.nonzero().flatten()
    scores_per_row = max(1, query[..., :1, 0].numel() * key.shape[-2])
    chunk_size = max(1, _CHUNK // scores_per_row)
    parts = []
    for chunk in rows.split(chunk_size):
        masks = _mask_rows(bias, chunk), _mask_rows(fill_mask, chunk)
        arguments = (query.index_select(-2, chunk), key, value, *masks, scale, rate)
        if len(rows) > chunk_size and torch.is_grad_enabled():
            parts.append(
                checkpoint(
                    _composition, *arguments, use_reentrant=False, preserve_rng_state=bool(rate)
                )
            )
        else:
            parts.append(_composition(*arguments))
    return result.index_copy(-2, rows, torch.cat(parts, -2))


def _mask_rows(mask: torch.Tensor | None, rows: torch.Tensor) -> torch.Tensor | None:
    """Return some rows of a mask that broadcasts to the scores; None for no mask."""
    if mask is None or mask.dim() < 2 or mask.shape[-2] == 1:
        return mask
    return mask.index_select(-2, rows)


def _composition(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor,
    fill_mask: torch.Tensor | None,
    scale: float,
    rate: float,
) -> torch.Tensor:
    """Compute the attention by separate operations, with dropout of the weights at `rate`."""
    scores = torch.matmul(query, key.transpose(-1, -2)) * scale
    if fill_mask is not None:
        scores = scores.masked_fill(fill_mask, 0)
    weights = functional.dropout(torch.softmax(scores + bias, -1), rate)
    return torch.matmul(weights, value)


def _attend_doubled(
    kernel: _Kernel,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor,
    lost: torch.Tensor,
) -> torch.Tensor:
    """Compute the attention with twice the features, so that the scores of lost rows are zero but
    have gradients.

    The first half holds the queries of ordinary rows beside the keys; the second half holds those
    of lost rows beside zeros. The gradients through the zeros are those that the composition gives
    the queries and the keys.
    """
    ordinary_queries = torch.where(lost, query - query.detach(), query)
    lost_queries = torch.where(lost, query, torch.zeros_like(query)).detach()
    doubled_keys = torch.cat([key, key - key.detach()], -1)
    return kernel(torch.cat([ordinary_queries, lost_queries], -1), doubled_keys, value, bias)
