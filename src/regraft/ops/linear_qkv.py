"""Three Linear layers of one input as one matrix product."""

from __future__ import annotations

from typing import Any

import torch

from regraft.ops.stacked_linear import stacked_linear, stacks

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
    q, k, v = stacked_linear(x, query, key, value)
    return q, k, v


def linear_qkv_reference(x: torch.Tensor, query: Any, key: Any, value: Any) -> QKV:
    """The composition that the op replaces, with the modules called as the model calls them."""
    return query(x), key(x), value(x)


def linear_qkv_implementation(x: torch.Tensor, query: Any, key: Any, value: Any) -> str:
    """Name of what runs for these arguments: "torch-native" for the batched product, or "reference"."""
    return "torch-native" if stacks(x, query, key, value) else "reference"
