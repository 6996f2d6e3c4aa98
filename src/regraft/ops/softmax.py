"""Softmax by PyTorch's own kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regraft.ops.plain import is_plain


def softmax(
    x: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None, *, layer: Any = None
) -> torch.Tensor:
    """Return `torch.nn.functional.softmax(x, dim, dtype=dtype)`, or the softmax of a `layer`, on
    every device.

    Shapes: the result has the shape of `x`. `layer` is the model's own, whose `dim` replaces the
    argument. A layer that is not a plain `torch.nn.Softmax` (another class, hooks) is called as the
    model does. The Triton softmax of xFormers that the Adopter paper targets no longer exists, and
    no other kernel here has been measured to beat PyTorch's own; the op only marks the place in the
    model.
    """
    if softmax_implementation(x, layer=layer) == "reference":
        return softmax_reference(x, dim, dtype, layer=layer)
    return functional.softmax(x, dim if layer is None else layer.dim, dtype=dtype)


def softmax_reference(
    x: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None, *, layer: Any = None
) -> torch.Tensor:
    """Compute the composition that the op replaces: the same function, or the call of the layer."""
    return functional.softmax(x, dim, dtype=dtype) if layer is None else layer(x)


def softmax_implementation(
    x: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None, *, layer: Any = None
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    is_supported = layer is None or (is_plain(layer, nn.Softmax) and layer.dim is not None)
    return "torch-native" if is_supported else "reference"
