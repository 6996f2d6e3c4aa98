"""The postponed output of a Linear layer, of which a cross entropy needs only a few rows at
a time."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from regraft.ops.liger import can_run_liger
from regraft.ops.plain import is_plain, is_transformed
from regraft.ops.postponed import PostponedTensor, autocast_dtype
from regraft.ops.postponed_logits import postpone_logits

_UNLIMITED_COLUMNS = 1 << 30


def postponed_linear(x: torch.Tensor, linear: Any) -> torch.Tensor:
    """Return `linear(x)`, and postpone it until more than its metadata or its cross entropy is
    needed.

    Shapes: `x` is `(..., H)`, the result `(..., C)`. Where Liger's kernels run, `linear` trains and
    has more outputs than inputs, the result is a `PostponedTensor`, except in float16.
    `torch.nn.functional.cross_entropy` of the result, also scaled, capped, cast, viewed as rows or
    with positions left out, is computed a few rows at a time by Liger's cross entropy, and so are
    its gradients, in the forward pass; there are no second derivatives. Any other function computes
    the elements as the layer does, once, and continues with the ordinary tensor. This raises
    RuntimeError if `x` or the parameters were changed in place before. `torch.autograd.grad` of a
    loss that was already computed by rows raises RuntimeError for the result as an input.
    """
    if postponed_linear_implementation(x, linear) != "liger":
        return postponed_linear_reference(x, linear)
    return postpone_logits(x, linear.weight, linear.bias)


def postponed_linear_reference(x: torch.Tensor, linear: Any) -> torch.Tensor:
    """Call the layer."""
    result: torch.Tensor = linear(x)
    return result


def postponed_linear_implementation(x: torch.Tensor, linear: Any) -> str:
    """Name the implementation for these arguments: "liger" or "reference"."""
    if not is_plain(linear, nn.Linear) or not linear.training or not torch.is_grad_enabled():
        return "reference"
    tensors = (x, linear.weight) if linear.bias is None else (x, linear.weight, linear.bias)
    if not can_run_liger(*tensors, columns=_UNLIMITED_COLUMNS):
        return "reference"
    if autocast_dtype(x) is None and any(tensor.dtype != x.dtype for tensor in tensors):
        return "reference"
    if isinstance(x, PostponedTensor) or x.dim() < 2 or x.shape[-1] != linear.in_features:
        return "reference"
    if (autocast_dtype(x) or x.dtype) == torch.float16:
        return "reference"  # gradients of a loss that is not scaled yet are too small for float16
    fits = linear.out_features > linear.in_features and any(
        tensor.requires_grad for tensor in tensors
    )
    return "liger" if fits and not x.is_inference() and not is_transformed() else "reference"
