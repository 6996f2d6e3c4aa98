"""A layer of multi-head attention whose weights nobody uses."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regraft.ops.plain import (
    are_kernels_forced,
    are_overridden,
    are_tensors,
    can_read,
    is_defined_in,
    is_plain,
    is_transformed,
)

# With gradients, a row whose largest bias is at most this counts as masked (`masked_rows.py`).
_LEAST_BIAS = -1e3
# For fewer keys than a vector of numbers, PyTorch's kernel on CPU gives zeros where a query is NaN.
_LEAST_KEYS = 16
# Numbers of scores below which the weights take no longer than a look at the masks on CPU.
_LEAST_WEIGHTS = 1 << 17


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
    layer, where functions of PyTorch are replaced or its composition of attention is forbidden, for
    masks that leave a query without any key (its output is NaN, and zero without
    weights) or that cannot be read (on other devices than CPU, and while something traces), under
    autocast, and on CPU in half precision, for dropout, fewer than 16 keys or few scores, and while
    a compiler traces, which would give a graph for some sizes only.
    """
    implementation = attention_without_weights_implementation(
        query,
        key,
        value,
        layer,
        key_padding_mask=key_padding_mask,
        attn_mask=attn_mask,
        is_causal=is_causal,
    )
    if implementation != "torch-native":
        return attention_without_weights_reference(
            query,
            key,
            value,
            layer,
            key_padding_mask=key_padding_mask,
            attn_mask=attn_mask,
            is_causal=is_causal,
        )
    # with the hint `is_causal` the layer would no longer look at the mask
    if torch.is_grad_enabled():
        # the kernel keeps masks for the backward pass, until which the model may change them
        key_padding_mask, attn_mask = map(_copy_of_numbers, (key_padding_mask, attn_mask))
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
    own_masks = {
        name: mask for name, mask in masks.items() if mask is not None and mask is not False
    }
    result: tuple[torch.Tensor, torch.Tensor | None] = layer(query, key, value, **own_masks)
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
    if not are_tensors(query, key, value) or not is_plain(layer, nn.MultiheadAttention):
        return "reference"
    if is_transformed() and (query.is_cpu or not torch.compiler.is_compiling()):
        return "reference"
    if not _has_kernel(query, key, value, layer):
        return "reference"
    masks = tuple(mask for mask in (key_padding_mask, attn_mask) if mask is not None)
    if not are_tensors(*masks) or are_overridden(query, key, value, *masks):
        return "reference"
    if attn_mask is None and is_causal is not False:  # an error
        return "reference"
    has_keys = not masks or _has_keys(query, key, layer, key_padding_mask, attn_mask)
    return "torch-native" if has_keys else "reference"


def _has_kernel(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: Any) -> bool:
    """Return whether attention without weights has a kernel for these tensors that is faster and as
    exact."""
    tensors = (query, key, value)
    if any(each.is_nested or each.is_meta or each.layout is not torch.strided for each in tensors):
        return False
    if query.is_cpu and not _pays_on_cpu(query, key, layer):
        return False
    if torch.is_autocast_enabled(query.device.type) or not query.is_floating_point():
        return False
    fits = all(tensor.numel() and tensor.dtype is query.dtype for tensor in tensors)
    return fits and _are_functions_original()


def _are_functions_original() -> bool:
    """Return whether attention without weights calls PyTorch's own kernel, and nobody watches the
    functions that compute weights (by a replacement of `torch.nn.functional.softmax`, say)."""
    return (
        functional.scaled_dot_product_attention is torch._C._nn.scaled_dot_product_attention
        and is_defined_in(functional.multi_head_attention_forward, functional.__name__)
        and is_defined_in(functional.softmax, functional.__name__)
        # without the composition there may be no kernel for these tensors
        and (torch.compiler.is_compiling() or torch.backends.cuda.math_sdp_enabled())
    )


def _copy_of_numbers(mask: torch.Tensor | None) -> torch.Tensor | None:
    """Return a copy of a mask of numbers, and other masks as they are, which the layer copies."""
    return mask if mask is None or mask.dtype is torch.bool else mask.clone()


def _pays_on_cpu(query: torch.Tensor, key: torch.Tensor, layer: Any) -> bool:
    """Return whether a call on CPU has enough scores, no dropout and an exact number format."""
    if not query.dim() == key.dim() > 1 or (layer.training and layer.dropout):
        return False
    if query.dtype not in (torch.float32, torch.float64):
        return False
    keys, rows = _sequence_length(key, layer), query.numel() // max(1, query.shape[-1])
    is_large = rows * keys * layer.num_heads >= _LEAST_WEIGHTS or are_kernels_forced()
    return keys >= _LEAST_KEYS and is_large


def _has_keys(
    query: torch.Tensor,
    key: torch.Tensor,
    layer: Any,
    key_padding_mask: torch.Tensor | None,
    attn_mask: torch.Tensor | None,
) -> bool:
    """Return whether the masks, of which there is at least one, certainly leave a key to each
    query."""
    if not query.is_cpu or not can_read():
        return False
    rows, keys = _sequence_length(query, layer), _sequence_length(key, layer)
    entries = query.numel() // (rows * query.shape[-1])
    padding_shape = (keys,) if query.dim() == 2 else (entries, keys)
    heads = entries * layer.num_heads
    if not _is_mask(key_padding_mask, query, (padding_shape,)):
        return False
    if not _is_mask(attn_mask, query, ((rows, keys), (heads, rows, keys))):
        return False
    padding = None if key_padding_mask is None else key_padding_mask.view(entries, 1, keys)
    biases = [_bias_of_mask(mask, query.dtype) for mask in (padding, attn_mask) if mask is not None]
    if len(biases) == 2 and biases[1].dim() == 3:
        biases[0] = biases[0].repeat_interleave(layer.num_heads, 0)
    largest = sum(biases[1:], biases[0]).amax(-1)
    least = _LEAST_BIAS if torch.is_grad_enabled() else -math.inf
    return bool(((largest > least) & (largest < math.inf)).all())


def _sequence_length(tensor: torch.Tensor, layer: Any) -> int:
    """Return the number of queries or keys in an input of the layer."""
    return int(tensor.shape[1 if layer.batch_first and tensor.dim() == 3 else 0])


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
