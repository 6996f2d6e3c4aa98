"""Cross entropy of logits by Liger's kernel."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regraft.ops.liger import LigerKernel, can_run_liger, liger_module
from regraft.ops.plain import are_tensors, is_plain

_REDUCTIONS = ("mean", "sum", "none")
_MAX_CLASSES = 1 << 30


def cross_entropy(
    x: torch.Tensor,
    target: torch.Tensor,
    *,
    weight: torch.Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    layer: Any = None,
) -> torch.Tensor:
    """Return the cross entropy of logits, as `torch.nn.functional.cross_entropy`, by Liger's
    kernel.

    Shapes: `x` is `(N, C)`, `target` `(N)` with class numbers, the result has no dimensions, or is
    `(N)` without reduction. `layer` is the model's own `torch.nn.CrossEntropyLoss`; its settings
    replace the options. Liger's own function writes the gradient over the logits, which models most
    often return; the op gives the kernel a copy. The kernel computes the
    loss of each row, and PyTorch reduces the losses, so that the mean is NaN if all rows are
    ignored, as in PyTorch. A second derivative raises RuntimeError. Any other arguments
    (probabilities as targets, more dimensions, class weights, a layer that is not plain) run as the
    original does.
    """
    options = {"weight": weight, "ignore_index": ignore_index, "reduction": reduction}
    options["label_smoothing"] = label_smoothing
    if cross_entropy_implementation(x, target, layer=layer, **options) != "liger":
        return cross_entropy_reference(x, target, layer=layer, **options)
    if layer is not None:
        ignore_index, reduction, label_smoothing = (
            layer.ignore_index,
            layer.reduction,
            layer.label_smoothing,
        )
    needs_gradient = torch.is_grad_enabled() and x.requires_grad
    rows = _cross_entropy_kernel(ignore_index, label_smoothing, needs_gradient)(x, target)
    if reduction == "none":
        return rows
    total = rows.sum(dtype=torch.float32)
    return (total if reduction == "sum" else total / (target != ignore_index).sum()).to(x.dtype)


def cross_entropy_reference(
    x: torch.Tensor, target: torch.Tensor, *, layer: Any = None, **options: Any
) -> torch.Tensor:
    """Call the function, or the module as the model calls it."""
    result: torch.Tensor = (
        functional.cross_entropy(x, target, **options) if layer is None else layer(x, target)
    )
    return result


def cross_entropy_implementation(
    x: torch.Tensor, target: torch.Tensor, *, layer: Any = None, **options: Any
) -> str:
    """Name the implementation for these arguments: "liger" or "reference"."""
    if layer is not None:
        if not is_plain(layer, nn.CrossEntropyLoss):
            return "reference"
        options = {"weight": layer.weight, "reduction": layer.reduction}
    if not are_tensors(x) or type(target) is not torch.Tensor:
        return "reference"
    if (
        x.dim() != 2
        or target.dim() != 1
        or target.dtype != torch.int64
        or target.device != x.device
    ):
        return "reference"
    if options.get("weight") is not None or options.get("reduction", "mean") not in _REDUCTIONS:
        return "reference"
    fits = can_run_liger(x, columns=_MAX_CLASSES) and target.shape == x.shape[:1]
    return "liger" if fits and not torch.is_autocast_enabled(x.device.type) else "reference"


@functools.lru_cache(maxsize=64)
def _cross_entropy_kernel(
    ignore_index: int, label_smoothing: float, needs_gradient: bool
) -> LigerKernel:
    """Make the kernel of the loss of each row for these options; Liger has to be installed."""
    module = liger_module("cross_entropy")
    assert module is not None

    def forward(
        x: torch.Tensor, target: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        # also without gradients, the kernel writes zeros over the logits of ignored rows
        logits = x.detach().clone(memory_format=torch.contiguous_format)
        logits.requires_grad_(needs_gradient)
        rows, *_ = module.cross_entropy_forward(
            logits, target, None, ignore_index, 0.0, label_smoothing, "none", None, False
        )
        return rows, ((logits.detach(),) if needs_gradient else ())

    def backward(
        inputs: tuple[torch.Tensor, ...], saved: tuple[torch.Tensor, ...], gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        return saved[0] * gradient.unsqueeze(1), None

    return LigerKernel(forward, backward, None)
