"""The weights of attention through NVIDIA's Apex: scale, mask and softmax in one pass; else as they stand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from regraft.ops.attention_form import constant
from regraft.ops.plain import differentiable_once, library_function, on_one_gpu

_HALF = (torch.float16, torch.bfloat16)
_FILL = -10_000.0  # what the kernel replaces masked scores by
_MAX_ROW = 2048


def apex_attention_weights(
    query: torch.Tensor, key: torch.Tensor, *, scale: Any = None, divisor: Any = None,
    mask: torch.Tensor | None = None, keep: torch.Tensor | None = None, fill: Any = None, bias: Any = None,
    dtype: torch.dtype | None = None, result: Any = None,
) -> torch.Tensor:  # fmt: skip
    """Softmax over the last dimension of `query @ key`, scaled and masked, by Apex' `scaled_masked_softmax`.

    Shapes: `query` is `(B, H, L, E)`, `key` `(B, H, E, S)`, the result `(B, H, L, S)`. In this order, and where they
    are given: times `scale`, over `divisor`, `fill` where `mask` holds or `keep` does not, plus `bias`; then softmax
    in `dtype`, and to the dtype `result`. The kernel takes half precision on CUDA that stays as it is, a number for
    the factor, a mask that is the same for all heads, and no bias. Anything else, also where Apex is not installed,
    runs as the composition.
    """
    given = {"scale": scale, "divisor": divisor, "mask": mask, "keep": keep, "fill": fill, "bias": bias}
    options = {**given, "dtype": dtype, "result": result}
    if apex_attention_weights_implementation(query, key, **options) != "apex":
        return apex_attention_weights_reference(query, key, **options)
    factor = (1.0 if scale is None else scale) / (1.0 if divisor is None else divisor)
    hidden = mask if keep is None else ~keep
    finite = constant(fill) != -math.inf
    return softmax_through_apex(_apex_softmax_kernel(), torch.matmul(query, key), hidden, factor, finite)


def apex_attention_weights_reference(
    query: torch.Tensor, key: torch.Tensor, *, scale: Any = None, divisor: Any = None,
    mask: torch.Tensor | None = None, keep: torch.Tensor | None = None, fill: Any = None, bias: Any = None,
    dtype: torch.dtype | None = None, result: Any = None,
) -> torch.Tensor:  # fmt: skip
    """The composition that the op replaces."""
    scores = torch.matmul(query, key)
    scores = scores if scale is None else scores * scale
    scores = scores if divisor is None else scores / divisor
    scores = scores if mask is None else scores.masked_fill(mask, fill)
    scores = scores if keep is None else torch.where(keep, scores, fill)
    weights = functional.softmax(scores if bias is None else scores + bias, -1, dtype=dtype)
    return weights if result is None else weights.to(result)


def softmax_through_apex(
    kernel: Callable[..., torch.Tensor], scores: torch.Tensor, mask: torch.Tensor | None, scale: float, finite: bool
) -> torch.Tensor:
    """Call Apex' kernel; what it gives for a row that is masked everywhere depends on its version, and is replaced.

    Source: https://github.com/NVIDIA/apex, `apex/transformer/functional/fused_softmax.py` and
    `csrc/megatron/scaled_masked_softmax.h`
    """
    rows, columns = scores.shape[-2:]
    if mask is None:
        nothing = scores.new_zeros((1, 1, rows, columns), dtype=torch.bool)
        return differentiable_once(kernel(scores.contiguous(), nothing, scale))
    sizes = (*[1] * (4 - mask.dim()), *mask.shape)
    mask = mask.reshape(sizes).expand(sizes[0], 1, rows, columns).contiguous()
    weights = kernel(scores.contiguous(), mask, scale)
    hidden = mask.all(-1, keepdim=True)
    return differentiable_once(weights.masked_fill(hidden, 1 / columns if finite else math.nan))


def apex_attention_weights_implementation(
    query: torch.Tensor, key: torch.Tensor, *, scale: Any = None, divisor: Any = None, mask: Any = None,
    keep: Any = None, fill: Any = None, bias: Any = None, dtype: torch.dtype | None = None, result: Any = None,
) -> str:  # fmt: skip
    """Name of what runs for these arguments: "apex" or "reference"."""
    if query.dtype not in _HALF or query.dim() != 4 or key.dim() != 4 or query.shape[:2] != key.shape[:2]:
        return "reference"
    if bias is not None or not (result is query.dtype or (result is None and dtype in (None, query.dtype))):
        return "reference"
    if any(one is not None and type(one) not in (int, float) for one in (scale, divisor)) or divisor == 0:
        return "reference"
    shape = (*query.shape[:3], key.shape[-1])
    hidden = [one for one in (mask, keep) if one is not None]
    number = constant(fill)
    fills = number is not None and number <= _FILL
    if hidden and (len(hidden) > 1 or not _is_mask(hidden[0], shape, query.device) or not fills):
        return "reference"
    return "apex" if _divides(shape) and on_one_gpu(query, key) and _apex_softmax_kernel() is not None else "reference"


def _is_mask(mask: Any, shape: tuple[int, ...], device: torch.device) -> bool:
    """Whether a mask is one of booleans, for each sample or for all, that is the same for all heads."""
    if type(mask) is not torch.Tensor or mask.dtype != torch.bool or mask.device != device or mask.dim() > 4:
        return False
    sizes = (*[1] * (4 - mask.dim()), *mask.shape)
    return sizes[1] == 1 and all(own in (1, size) for own, size in zip(sizes, shape, strict=True))


def _divides(shape: tuple[int, ...]) -> bool:
    """Whether the kernel's blocks and vectors divide the scores."""
    batch, heads, rows, columns = shape
    whole = 16 < columns <= _MAX_ROW and not columns % 8
    return whole and rows > 1 and not rows % (8 if columns <= 128 else 4) and not (batch * heads) % 4


def _apex_softmax_kernel() -> Any:
    module, name = "apex.transformer.functional.fused_softmax", "scaled_masked_softmax"
    return library_function(module, name, "scaled_masked_softmax_cuda")
