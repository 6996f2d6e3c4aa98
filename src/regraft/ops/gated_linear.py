"""Gate and up projections of a gated MLP as one matrix product."""

from __future__ import annotations

from typing import Any

import torch

from regraft.ops.stacked_linear import stacked_linear, stacks


def gated_linear(x: torch.Tensor, gate: Any, up: Any, activation: Any) -> torch.Tensor:
    """`activation(gate(x)) * up(x)`.

    Shapes: `x` is `(..., in_features)`, the result `(..., out_features)`. The layers and the activation are the
    model's own. On CUDA, where no gradient is wanted, two plain layers of one size run as one batched matrix product;
    everywhere else the bits are those of the two.
    """
    if gated_linear_implementation(x, gate, up, activation) != "torch-native":
        return gated_linear_reference(x, gate, up, activation)
    opened, raised = stacked_linear(x, gate, up)
    result: torch.Tensor = activation(opened) * raised
    return result


def gated_linear_reference(x: torch.Tensor, gate: Any, up: Any, activation: Any) -> torch.Tensor:
    """The composition that the op replaces, with the modules called as the model calls them."""
    result: torch.Tensor = activation(gate(x)) * up(x)
    return result


def gated_linear_implementation(x: torch.Tensor, gate: Any, up: Any, activation: Any) -> str:
    """Name of what runs for these arguments: "torch-native" for the batched product, or "reference"."""
    return "torch-native" if stacks(x, gate, up) else "reference"
