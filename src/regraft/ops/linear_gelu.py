"""A Linear layer and the GELU after it, with bias and activation in one pass over memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regraft.ops.activation_recognition import is_gelu
from regraft.ops.compiled_region import run_region
from regraft.ops.plain import compiles, is_plain


def linear_gelu(
    x: torch.Tensor, linear: Any, gelu: Any = None, *, approximate: str = "none"
) -> torch.Tensor:
    """Return `gelu(linear(x))`, or `torch.nn.functional.gelu(linear(x), approximate=approximate)`
    without `gelu`.

    Shapes: `x` is `(..., linear.in_features)`, the result `(..., linear.out_features)`. `linear`
    and `gelu` are the model's own modules: any but a plain `torch.nn.Linear` with a bias and a
    provable GELU are called as the model calls them. On CUDA plain modules run as a compiled
    region; in all other cases the bits are those of the original.
    """
    if not compiles(x) or linear_gelu_implementation(x, linear, gelu) != "torch.compile":
        return linear_gelu_reference(x, linear, gelu, approximate=approximate)
    if gelu is not None:
        approximate = getattr(gelu, "approximate", "none")
    return run_region(_linear_gelu, (x, linear.weight, linear.bias), approximate)


def linear_gelu_reference(
    x: torch.Tensor, linear: Any, gelu: Any = None, *, approximate: str = "none"
) -> torch.Tensor:
    """Compute the composition that the op replaces, with the modules called as the model calls
    them."""
    hidden = linear(x)
    result: torch.Tensor = (
        functional.gelu(hidden, approximate=approximate) if gelu is None else gelu(hidden)
    )
    return result


def linear_gelu_implementation(x: torch.Tensor, linear: Any, gelu: Any = None) -> str:
    """Name the implementation for these arguments: "torch.compile", "torch-native" or
    "reference"."""
    is_supported = is_plain(linear, nn.Linear) and linear.bias is not None
    if (
        torch.compiler.is_compiling()
        or not is_supported
        or not (gelu is None or is_plain(gelu, nn.GELU) or is_gelu(gelu))
    ):
        return "reference"  # the surrounding compiler fuses by itself, and sees the hooks
    return "torch.compile" if compiles(x) else "torch-native"


def _linear_gelu(
    _: None, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, approximate: str
) -> tuple[torch.Tensor, None]:
    """Compute the region; there are no random draws, so its first argument and its second result
    are None."""
    return functional.gelu(functional.linear(x, weight, bias), approximate=approximate), None
