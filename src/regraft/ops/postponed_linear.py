"""The postponed output of a Linear layer, of which a cross entropy needs only a few rows at
a time."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from regraft.ops.liger import can_run_liger
from regraft.ops.plain import is_plain, linear_operands
from regraft.ops.postponed import autocast_dtype
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
    operands = linear_operands(x, linear)
    if not can_run_liger(*operands, columns=_UNLIMITED_COLUMNS) or x.is_inference():
        return "reference"
    if not _loss_takes_dtypes(x, operands):
        return "reference"
    if x.dim() < 2 or x.shape[-1] != linear.in_features:
        return "reference"
    needs_gradients = any(tensor.requires_grad for tensor in operands)
    return "liger" if needs_gradients and linear.out_features > linear.in_features else "reference"


def _loss_takes_dtypes(x: torch.Tensor, operands: tuple[torch.Tensor, ...]) -> bool:
    """Return whether the layer computes in one dtype other than float16.

    Gradients of a loss that is not scaled yet are too small for float16.
    """
    cast = autocast_dtype(x)
    if cast is None and any(tensor.dtype != x.dtype for tensor in operands):
        return False
    return bool((cast or x.dtype) != torch.float16)
