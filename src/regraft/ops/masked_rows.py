"""Attention where every key of a query is masked: kernels do not differentiate such rows as the composition does."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from regraft.ops.plain import is_transformed

# A row whose largest bias is below this has no key to attend to.
_MASKED = -1e3
# A score added to a float32 number below this is lost in its rounding.
_ABSORBING = -(2.0**28)
_CHUNK = 1 << 22  # scores that are computed together
_Kernel = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def attend_with_masked_rows(
    kernel: _Kernel, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor,
    filled: torch.Tensor | None, added: bool, scale: float, rate: float = 0.0,
) -> torch.Tensor:  # fmt: skip
    """`softmax(scale * query @ key.transpose(-1, -2) + bias, -1) @ value` by a kernel, right in masked rows, too.

    Shapes: `query` is `(..., L, E)`, `key` `(..., S, E)`, `value` `(..., S, V)` with equal leading sizes; `bias`
    and the boolean `filled` broadcast to `(..., L, S)`. Where `filled` is true the model replaces the score by the
    bias, so that no gradient reaches the score. `added` says whether the bias also holds a mask that the model adds.
    `kernel(query, key, value, bias)` computes the attention, with dropout of the weights at `rate`.

    A kernel's backward pass recomputes the weights from the logarithm of their sum, which rounding swallows beside a
    bias such as `finfo.min`: the gradients of a row without any other key come out too large by the number of keys.
    On CPU such rows are computed by the composition, in chunks that the backward pass computes again. Elsewhere, and
    while a compiler traces, nothing asks for elements: queries of such rows are replaced by zeros, which gives the
    weights that rounding leaves in the composition.
    """
    tensors = (query, key, value, bias)
    differentiated = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    top = bias.detach().amax(-1, keepdim=True)
    if _can_read(bias):
        masked = top <= (_MASKED if differentiated else -math.inf)
        if not bool(masked.any()):
            return kernel(query, key, value, bias)
        return _replace_rows(kernel, query, key, value, bias, filled, masked, scale, rate)
    lost = top <= _ABSORBING
    if differentiated and filled is not None and added:
        return _composition(query, key, value, bias, filled, scale, rate)
    bias = torch.where(lost, bias - top, bias)  # a row of -inf becomes NaN, as softmax gives it
    if differentiated and filled is None:
        return _attend_doubled(kernel, query, key, value, bias, lost)
    return kernel(query.masked_fill(lost, 0), key, value, bias)


def _can_read(bias: torch.Tensor) -> bool:
    """Whether reading elements is free: on CPU, with nobody tracing or transforming."""
    return bias.device.type == "cpu" and not is_transformed() and not torch._C._len_torch_dispatch_stack()


def _replace_rows(
    kernel: _Kernel, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor,
    filled: torch.Tensor | None, masked: torch.Tensor, scale: float, rate: float,
) -> torch.Tensor:  # fmt: skip
    """The kernel's result with the masked rows taken from the composition. Shape of `masked`: `(..., L or 1, 1)`."""
    result = kernel(query, key, value, bias.masked_fill(masked, 0))
    if masked.dim() < query.dim() or masked.shape[0] == 1:
        rows = _compose_rows(query, key, value, bias, filled, masked, scale, rate, result)
        return torch.where(masked, rows, result)
    chosen = masked.flatten(1).any(1).nonzero().flatten()  # entries of the batch
    query, key, value, bias, masked = (tensor.index_select(0, chosen) for tensor in (query, key, value, bias, masked))
    if filled is not None and filled.dim() == query.dim() and filled.shape[0] > 1:
        filled = filled.index_select(0, chosen)
    before = result.index_select(0, chosen)
    rows = _compose_rows(query, key, value, bias, filled, masked, scale, rate, before)
    return result.index_copy(0, chosen, torch.where(masked, rows, before))


def _compose_rows(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor, filled: torch.Tensor | None,
    masked: torch.Tensor, scale: float, rate: float, result: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """The result with every row of queries that is masked anywhere computed by the composition, chunk by chunk."""
    anywhere = masked.reshape(-1, masked.shape[-2]).any(0).expand(query.shape[-2])
    rows = anywhere.nonzero().flatten()
    each = max(1, query[..., :1, 0].numel() * key.shape[-2])
    size = max(1, _CHUNK // each)
    parts = []
    for chunk in rows.split(size):
        masks = _rows_of(bias, chunk), _rows_of(filled, chunk)
        given = (query.index_select(-2, chunk), key, value, *masks, scale, rate)
        if len(rows) > size and torch.is_grad_enabled():
            parts.append(checkpoint(_composition, *given, use_reentrant=False, preserve_rng_state=bool(rate)))
        else:
            parts.append(_composition(*given))
    return result.index_copy(-2, rows, torch.cat(parts, -2))


def _rows_of(mask: torch.Tensor | None, rows: torch.Tensor) -> torch.Tensor | None:
    """Some rows of what broadcasts to the scores."""
    if mask is None or mask.dim() < 2 or mask.shape[-2] == 1:
        return mask
    return mask.index_select(-2, rows)


def _composition(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor, filled: torch.Tensor | None,
    scale: float, rate: float,
) -> torch.Tensor:  # fmt: skip
    scores = torch.matmul(query, key.transpose(-1, -2)) * scale
    if filled is not None:
        scores = scores.masked_fill(filled, 0)
    weights = functional.dropout(torch.softmax(scores + bias, -1), rate)
    return torch.matmul(weights, value)


def _attend_doubled(
    kernel: _Kernel, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor,
    lost: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """Attention with twice the features, in which the scores of lost rows are zero and their gradients are not.

    The first half holds the queries of ordinary rows beside the keys; the second half holds those of lost rows beside
    zeros. The gradients of the zeros are those that the composition gives the queries and the keys.
    """
    first = torch.where(lost, query - query.detach(), query)
    second = torch.where(lost, query, torch.zeros_like(query)).detach()
    keys = torch.cat([key, key - key.detach()], -1)
    return kernel(torch.cat([first, second], -1), keys, value, bias)
