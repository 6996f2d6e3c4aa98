"""The output of a Linear layer that is computed when somebody looks at it: a loss needs few of its rows at a time."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from regraft.ops.liger import takes
from regraft.ops.plain import is_plain, is_transformed
from regraft.ops.postponed import PostponedTensor, autocast_dtype
from regraft.ops.postponed_logits import postponed

_ANY_NUMBER = 1 << 30


def postponed_linear(x: torch.Tensor, linear: Any) -> torch.Tensor:
    """`linear(x)`, computed as soon as anything but the metadata of the result is asked for.

    Shapes: `x` is `(..., H)`, the result `(..., C)`. Where Liger's kernels run, `linear` trains and has more outputs
    than inputs, the result is a `PostponedTensor`, except in float16. `torch.nn.functional.cross_entropy` of it, also
    scaled, capped, cast, viewed as rows or with positions left out, is computed a few rows at a time by Liger's cross
    entropy, and so are its gradients, in the forward pass; there are no second derivatives. Everything else computes
    the tensor as the layer does, once, and goes on with it. RuntimeError where `x` or the parameters were changed
    before that, and where gradients of a loss that is already there are asked for the tensor by `torch.autograd.grad`.
    """
    if postponed_linear_implementation(x, linear) != "liger":
        return postponed_linear_reference(x, linear)
    return postponed(x, linear.weight, linear.bias)


def postponed_linear_reference(x: torch.Tensor, linear: Any) -> torch.Tensor:
    """The layer's own call."""
    result: torch.Tensor = linear(x)
    return result


def postponed_linear_implementation(x: torch.Tensor, linear: Any) -> str:
    """Name of what runs for these arguments: "liger" or "reference"."""
    if not is_plain(linear, nn.Linear) or not linear.training or not torch.is_grad_enabled():
        return "reference"
    given = (x, linear.weight) if linear.bias is None else (x, linear.weight, linear.bias)
    if not takes(*given, columns=_ANY_NUMBER):
        return "reference"
    if autocast_dtype(x) is None and any(one.dtype != x.dtype for one in given):
        return "reference"
    if isinstance(x, PostponedTensor) or x.dim() < 2 or x.shape[-1] != linear.in_features:
        return "reference"
    if (autocast_dtype(x) or x.dtype) == torch.float16:
        return "reference"  # gradients of a loss that is not scaled yet are too small for it
    fits = linear.out_features > linear.in_features and any(one.requires_grad for one in given)
    return "liger" if fits and not x.is_inference() and not is_transformed() else "reference"
