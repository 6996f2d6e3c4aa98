"""A linear layer at one position of a sequence."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regraft.ops.plain import are_overridden, are_tensors, is_plain, linear_operands


def linear_at(x: torch.Tensor, linear: Any, position: int) -> torch.Tensor:
    """Return `linear(x)[:, position]` with the layer applied to this position only.

    Shapes: `x` is `(N, T, ..., in_features)`, the result `(N, ..., out_features)`. A layer with
    hooks, or of another class than `torch.nn.Linear`, is called with all positions, as before.
    """
    if linear_at_implementation(x, linear, position) == "torch-native":
        return functional.linear(*linear_operands(x[:, position], linear))
    return linear_at_reference(x, linear, position)


def linear_at_reference(x: torch.Tensor, linear: Any, position: int) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    positions: torch.Tensor = linear(x)
    return positions[:, position]


def linear_at_implementation(x: torch.Tensor, linear: Any, position: int) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    is_sequence = are_tensors(x) and x.dim() > 2 and type(position) is int
    if are_overridden(x):
        return "reference"
    return "torch-native" if is_sequence and is_plain(linear, nn.Linear) else "reference"
