"""A Linear layer and the batch normalisation after it, as one Linear layer in evaluation."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regraft.ops.folding import apply_members_after, can_fold, scale_and_shift
from regraft.ops.plain import are_tensors


def linear_batch_norm(x: torch.Tensor, linear: Any, norm: Any) -> torch.Tensor:
    """Return `norm(linear(x))`.

    Shapes: `x` is `(N, linear.in_features)`, the result `(N, linear.out_features)`; with more
    dimensions `norm` normalises another axis than the features. `linear` and `norm` are the model's
    own modules; where nothing is folded they are called as the model calls them, bit for bit. In
    evaluation the running statistics are folded into the weights, if both modules are plain, all
    tensors are float32 or all are float64, no gradient of `norm.weight` is needed, and the result
    is large (on CPU 2**20 elements, and 64 for each weight) or REGRAFT_KERNELS=always is in the
    environment. The result is differentiable in the input and all parameters.
    """
    if linear_batch_norm_implementation(x, linear, norm) != "folded":
        return linear_batch_norm_reference(x, linear, norm)
    scale, shift = scale_and_shift(norm, linear.bias)
    return apply_members_after(
        norm, functional.linear(x, linear.weight * scale.unsqueeze(1), shift)
    )


def linear_batch_norm_reference(x: torch.Tensor, linear: Any, norm: Any) -> torch.Tensor:
    """Compute the composition that the op replaces, with the modules called as the model calls
    them."""
    result: torch.Tensor = norm(linear(x))
    return result


def linear_batch_norm_implementation(x: torch.Tensor, linear: Any, norm: Any) -> str:
    """Name the implementation for these arguments: "folded" or "reference"."""
    if type(linear) is not nn.Linear or not are_tensors(x) or x.dim() != 2:
        return "reference"
    if not isinstance(norm, nn.BatchNorm1d) or norm.training:
        return "reference"
    fits = can_fold(x, linear, norm, nn.BatchNorm1d, linear.out_features, x.shape[0])
    return "folded" if fits else "reference"
