"""Three Linear layers of one input as one matrix product."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from regraft.ops.plain import compiles, is_plain

QKV = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def linear_qkv(x: torch.Tensor, query: Any, key: Any, value: Any) -> QKV:
    """`query(x), key(x), value(x)`.

    Shapes: `x` is `(..., in_features)`, the results `(..., out_features)` of each layer, which may differ (grouped
    heads). The layers are the model's own, so old checkpoints load and new ones are saved as before; what is not a
    plain `torch.nn.Linear` is called like the original does. On CUDA, where no gradient is wanted, plain ones of one
    size run as one batched matrix product; everywhere else the bits are those of the three.
    """
    if linear_qkv_implementation(x, query, key, value) != "torch-native":
        return linear_qkv_reference(x, query, key, value)
    layers = (query, key, value)
    weights = torch.stack([one.weight for one in layers]).transpose(1, 2)
    rows = x.reshape(1, -1, x.shape[-1]).expand(3, -1, -1)
    if query.bias is None:
        product = torch.bmm(rows, weights)
    else:
        product = torch.baddbmm(torch.stack([one.bias for one in layers]).unsqueeze(1), rows, weights)
    q, k, v = product.view(3, *x.shape[:-1], -1).unbind()
    return q, k, v


def linear_qkv_reference(x: torch.Tensor, query: Any, key: Any, value: Any) -> QKV:
    """The composition that the op replaces, with the modules called as the model calls them."""
    return query(x), key(x), value(x)


def linear_qkv_implementation(x: torch.Tensor, query: Any, key: Any, value: Any) -> str:
    """Name of what runs for these arguments: "torch-native" for the batched product, or "reference"."""
    layers = (query, key, value)
    if torch.compiler.is_compiling() or not all(is_plain(one, nn.Linear) for one in layers):
        return "reference"  # the compiler around it fuses, and sees the hooks
    kinds = {(one.weight.dtype, one.weight.device, one.weight.shape, one.bias is None) for one in layers}
    if torch.is_grad_enabled() or torch.is_autocast_enabled(x.device.type) or kinds != {_kind(x, query)}:
        return "reference"
    return "torch-native" if compiles(x) and x.numel() else "reference"


def _kind(x: torch.Tensor, layer: nn.Linear) -> tuple[torch.dtype, torch.device, torch.Size, bool]:
    return x.dtype, x.device, layer.weight.shape, layer.bias is None
