"""The quick GELU of CLIP by SiLU, which saves only one tensor for the backward pass."""

from __future__ import annotations

import torch
from torch.nn import functional

from regraft.ops.plain import are_overridden, is_forward_mode

# in float16, 1.702 times a large number is infinite
_WIDE = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
)


def quick_gelu(x: torch.Tensor) -> torch.Tensor:
    """Return `x * sigmoid(1.702 * x)`, elementwise, as `silu(1.702 * x) / 1.702` for dtypes of a
    wide enough range."""
    is_native = quick_gelu_implementation(x) != "reference"
    return functional.silu(1.702 * x) / 1.702 if is_native else quick_gelu_reference(x)


def quick_gelu_reference(x: torch.Tensor) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    return x * torch.sigmoid(1.702 * x)


def quick_gelu_implementation(x: torch.Tensor) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    is_wide = isinstance(x, torch.Tensor) and x.dtype in _WIDE
    is_native = is_wide and not is_forward_mode() and not are_overridden(x)
    return "torch-native" if is_native else "reference"
