"""The query, key and value layers of attention as one batched matrix product."""

from __future__ import annotations

from typing import Any

import torch

from regraft.ops.stacked_linear import can_stack, stacked_linear

QKV = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def linear_qkv(x: torch.Tensor, query: Any, key: Any, value: Any) -> QKV:
    """Return `query(x), key(x), value(x)`.

    Shapes: `x` is `(..., in_features)`, the results `(..., out_features)` of each layer, which may
    differ (grouped heads). The layers are the model's own, so old checkpoints load and new ones are
    saved as before; any layer but a plain `torch.nn.Linear` is called as the model calls it. On
    CUDA, with gradients disabled, plain layers of one size run as one batched matrix product; in
    all other cases the bits are those of the three layers.
    """
    if linear_qkv_implementation(x, query, key, value) != "torch-native":
        return linear_qkv_reference(x, query, key, value)
    q, k, v = stacked_linear(x, query, key, value)
    return q, k, v


def linear_qkv_reference(x: torch.Tensor, query: Any, key: Any, value: Any) -> QKV:
    """Compute the composition that the op replaces, with the modules called as the model calls
    them."""
    return query(x), key(x), value(x)


def linear_qkv_implementation(x: torch.Tensor, query: Any, key: Any, value: Any) -> str:
    """Name the implementation for these arguments: "torch-native" for the batched product, or
    "reference"."""
    return "torch-native" if can_stack(x, query, key, value) else "reference"
