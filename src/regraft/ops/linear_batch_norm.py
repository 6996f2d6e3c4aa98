"""A Linear layer and the batch normalisation after it: in evaluation one Linear layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regraft.ops.folding import after, folds, scale_and_shift
from regraft.ops.plain import are_tensors


def linear_batch_norm(x: torch.Tensor, linear: Any, norm: Any) -> torch.Tensor:
    """`norm(linear(x))`.

    Shapes: `x` is `(N, linear.in_features)`, the result `(N, linear.out_features)`; with more dimensions `norm`
    normalises another axis than the features. `linear` and `norm` are the model's own modules; where nothing is
    folded they are called like the original does, bit for bit. In evaluation the running statistics are folded into
    the weights, if both modules are plain, everything is float32 or everything is float64, no gradient of
    `norm.weight` is wanted, and the result is large (on CPU 2**20 elements, and 64 for each weight) or
    REGRAFT_KERNELS=always is in the environment. It is differentiable in the input and all parameters.
    """
    if linear_batch_norm_implementation(x, linear, norm) != "folded":
        return linear_batch_norm_reference(x, linear, norm)
    scale, shift = scale_and_shift(norm, linear.bias)
    return after(norm, functional.linear(x, linear.weight * scale.unsqueeze(1), shift))


def linear_batch_norm_reference(x: torch.Tensor, linear: Any, norm: Any) -> torch.Tensor:
    """The composition that the op replaces, with the modules called as the model calls them."""
    result: torch.Tensor = norm(linear(x))
    return result


def linear_batch_norm_implementation(x: torch.Tensor, linear: Any, norm: Any) -> str:
    """Name of what runs for these arguments: "folded" or "reference"."""
    if type(linear) is not nn.Linear or not are_tensors(x) or x.dim() != 2:
        return "reference"
    fits = folds(x, linear, norm, nn.BatchNorm1d, linear.out_features, x.shape[0])
    return "folded" if fits else "reference"
