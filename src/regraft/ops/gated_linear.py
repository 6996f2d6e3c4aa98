"""Gate and up projections of a gated MLP as one matrix product."""

from __future__ import annotations

from typing import Any

import torch

from regraft.ops.stacked_linear import can_stack, stacked_linear


def gated_linear(x: torch.Tensor, gate: Any, up: Any, activation: Any) -> torch.Tensor:
    """Return `activation(gate(x)) * up(x)`.

    Shapes: `x` is `(..., in_features)`, the result `(..., out_features)`. The layers and the
    activation are the model's own. On CUDA, with gradients disabled, two plain layers of one size
    run as one batched matrix product; in all other cases the bits are those of the two layers.
    """
    if gated_linear_implementation(x, gate, up, activation) != "torch-native":
        return gated_linear_reference(x, gate, up, activation)
    gated, projected = stacked_linear(x, gate, up)
    result: torch.Tensor = activation(gated) * projected
    return result


def gated_linear_reference(x: torch.Tensor, gate: Any, up: Any, activation: Any) -> torch.Tensor:
    """Compute the composition that the op replaces, with the modules called as the model calls
    them."""
    result: torch.Tensor = activation(gate(x)) * up(x)
    return result


def gated_linear_implementation(x: torch.Tensor, gate: Any, up: Any, activation: Any) -> str:
    """Name the implementation for these arguments: "torch-native" for the batched product, or
    "reference"."""
    return "torch-native" if can_stack(x, gate, up) else "reference"
