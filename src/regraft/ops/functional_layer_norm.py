"""Layer normalisation with weight and bias as arguments, by Liger's kernel."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from regraft.ops.layer_norm import can_run_layer_norm, layer_norm_kernel


def functional_layer_norm(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Return `torch.nn.functional.layer_norm` of the arguments, by Liger's kernel.

    Shapes: `x` and the result are `(..., *normalized_shape)`, `weight` and `bias` have the shape
    `normalized_shape`. Arguments that the kernel does not take (no weight, more than the last
    dimension, other dtypes than that of `x`, or under autocast) run as the function itself.
    """
    if functional_layer_norm_implementation(x, normalized_shape, weight, bias, eps) != "liger":
        return functional_layer_norm_reference(x, normalized_shape, weight, bias, eps)
    return layer_norm_kernel(eps)(x, weight, bias)


def functional_layer_norm_reference(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Call the function that the op replaces."""
    return torch.nn.functional.layer_norm(x, normalized_shape, weight, bias, eps)


def functional_layer_norm_implementation(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> str:
    """Name the implementation for these arguments: "liger" or "reference"."""
    if weight is None or type(eps) is not float:
        return "reference"
    fits = can_run_layer_norm(x, weight, bias) and weight.shape == torch.Size(normalized_shape)
    return "liger" if fits else "reference"
