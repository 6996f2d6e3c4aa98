"""A layer of multi-head attention whose weights nobody uses."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from regraft.ops.plain import are_overridden, are_tensors, can_read, is_plain, is_transformed

# With gradients, a row whose largest bias is at most this counts as masked (`masked_rows.py`).
_LEAST_BIAS = -1e3
# For fewer keys than a vector of numbers, PyTorch's kernel on CPU gives zeros where a query is NaN.
_FEWEST_KEYS = 16


def attention_without_weights(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    layer: Any,
    *,
    key_padding_mask: torch.Tensor | None = None,
    attn_mask: torch.Tensor | None = None,
    is_causal: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the result of a `torch.nn.MultiheadAttention` for these arguments, with None for the
    weights where `need_weights=False` gives the same output.

    Shapes: as the layer's. The layer is called as the model calls it if it has hooks or is no plain
    layer, for masks that leave a query without any key (its output is NaN, and zero without
    weights) or that cannot be read (on other devices than CPU, and while something traces), in half
    precision on CPU, under autocast, and for dropout or fewer than 16 keys on CPU.
    """
    masks = {"key_padding_mask": key_padding_mask, "attn_mask": attn_mask, "is_causal": is_causal}
    implementation = attention_without_weights_implementation(query, key, value, layer, **masks)
    if implementation != "torch-native":
        return attention_without_weights_reference(query, key, value, layer, **masks)
    # with the hint `is_causal` the layer would no longer look at the mask
    result: tuple[torch.Tensor, None] = layer(
        query,
        key,
        value,
        key_padding_mask=key_padding_mask,
        need_weights=False,
        attn_mask=attn_mask,
    )
    return result


def attention_without_weights_reference(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: Any, **masks: Any
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Call the layer as the model calls it."""
    given = {name: mask for name, mask in masks.items() if mask is not None and mask is not False}
    result: tuple[torch.Tensor, torch.Tensor | None] = layer(query, key, value, **given)
    return result


def attention_without_weights_implementation(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    layer: Any,
    *,
    key_padding_mask: torch.Tensor | None = None,
    attn_mask: torch.Tensor | None = None,
    is_causal: bool = False,
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    masks = tuple(mask for mask in (key_padding_mask, attn_mask) if mask is not None)
    tensors = (query, key, value, *masks)
    if not are_tensors(*tensors) or not is_plain(layer, nn.MultiheadAttention):
        return "reference"
    if are_overridden(*tensors) or (is_transformed() and not torch.compiler.is_compiling()):
        return "reference"
    is_wrong = type(is_causal) is not bool or (is_causal and attn_mask is None)  # an error
    if is_wrong or not _has_kernel(query, key, value, layer):
        return "reference"
    can_attend = not masks or _has_keys(query, key, layer, key_padding_mask, attn_mask)
    return "torch-native" if can_attend else "reference"


def _has_kernel(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: Any) -> bool:
    """Return whether these are plain tensors with elements, in a number format for which attention
    without weights pays, outside of autocast."""
    dtype = query.dtype
    if torch.is_autocast_enabled(query.device.type) or not key.dtype is value.dtype is dtype:
        return False
    for tensor in (query, key, value):
        if tensor.layout is not torch.strided or tensor.is_nested or not tensor.numel():
            return False
    if not query.is_cpu:
        return dtype.is_floating_point
    is_dropping = layer.training and layer.dropout
    has_many_keys = key.dim() in (2, 3) and _sequence_length(key, layer) >= _FEWEST_KEYS
    return dtype in (torch.float32, torch.float64) and has_many_keys and not is_dropping


def _has_keys(
    query: torch.Tensor,
    key: torch.Tensor,
    layer: Any,
    key_padding_mask: torch.Tensor | None,
    attn_mask: torch.Tensor | None,
) -> bool:
    """Return whether the masks, of which there is at least one, certainly leave a key to each
    query."""
    if not query.is_cpu or not can_read() or query.dim() != key.dim():
        return False
    rows, keys = _sequence_length(query, layer), _sequence_length(key, layer)
    entries = query.numel() // (rows * query.shape[-1])
    padding_shape = (keys,) if query.dim() == 2 else (entries, keys)
    heads = entries * layer.num_heads
    if not _is_mask(key_padding_mask, query, (padding_shape,)):
        return False
    if not _is_mask(attn_mask, query, ((rows, keys), (heads, rows, keys))):
        return False
    biases = [
        _bias_of_mask(mask, query.dtype)
        for mask in (
            None if key_padding_mask is None else key_padding_mask.view(entries, 1, keys),
            attn_mask,
        )
        if mask is not None
    ]
    if len(biases) == 2 and biases[1].dim() == 3:
        biases[0] = biases[0].repeat_interleave(layer.num_heads, 0)
    largest = sum(biases[1:], biases[0]).amax(-1)
    least = _LEAST_BIAS if torch.is_grad_enabled() else -math.inf
    return bool(((largest > least) & (largest < math.inf)).all())


def _sequence_length(tensor: torch.Tensor, layer: Any) -> int:
    """Return the number of queries or keys in an input of the layer."""
    return tensor.shape[1 if layer.batch_first and tensor.dim() == 3 else 0]


def _is_mask(
    mask: torch.Tensor | None, query: torch.Tensor, shapes: tuple[tuple[int, ...], ...]
) -> bool:
    """Return whether a mask is None, or on CPU in one of these shapes, boolean or in the number
    format of the query, and without gradients."""
    if mask is None:
        return True
    is_mask_dtype = mask.dtype is torch.bool or mask.dtype is query.dtype
    is_plain_tensor = mask.is_cpu and mask.layout is torch.strided and not mask.requires_grad
    return is_mask_dtype and is_plain_tensor and tuple(mask.shape) in shapes


def _bias_of_mask(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return what a mask adds to the scores."""
    if mask.dtype is not torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, -math.inf)
