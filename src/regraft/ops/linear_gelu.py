"""A Linear layer and the GELU after it: bias and activation in one pass over memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regraft.ops.activations import is_gelu
from regraft.ops.compiled_region import run_region
from regraft.ops.plain import compiles, is_plain


def linear_gelu(x: torch.Tensor, linear: Any, gelu: Any = None, *, approximate: str = "none") -> torch.Tensor:
    """`gelu(linear(x))`, or `torch.nn.functional.gelu(linear(x), approximate=approximate)` without `gelu`.

    Shapes: `x` is `(..., linear.in_features)`, the result `(..., linear.out_features)`. `linear` and `gelu` are the
    model's own modules: whatever is not a plain `torch.nn.Linear` with a bias, or provably a GELU, is called like the
    original does. On CUDA plain ones run as a compiled region; everywhere else the bits are those of the original.
    """
    if linear_gelu_implementation(x, linear, gelu) != "torch.compile":
        return linear_gelu_reference(x, linear, gelu, approximate=approximate)
    if gelu is not None:
        approximate = getattr(gelu, "approximate", "none")
    return run_region(_linear_gelu, (x, linear.weight, linear.bias), approximate)


def linear_gelu_reference(
    x: torch.Tensor, linear: Any, gelu: Any = None, *, approximate: str = "none"
) -> torch.Tensor:
    """The composition that the op replaces, with the modules called as the model calls them."""
    h = linear(x)
    result: torch.Tensor = functional.gelu(h, approximate=approximate) if gelu is None else gelu(h)
    return result


def linear_gelu_implementation(x: torch.Tensor, linear: Any, gelu: Any = None) -> str:
    """Name of what runs for these arguments: "torch.compile", "torch-native" or "reference"."""
    plain = is_plain(linear, nn.Linear) and linear.bias is not None
    if torch.compiler.is_compiling() or not plain or not (gelu is None or is_plain(gelu, nn.GELU) or is_gelu(gelu)):
        return "reference"  # the compiler around it fuses, and sees the hooks
    return "torch.compile" if compiles(x) else "torch-native"


def _linear_gelu(
    _: None, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, approximate: str
) -> tuple[torch.Tensor, None]:
    return functional.gelu(functional.linear(x, weight, bias), approximate=approximate), None
