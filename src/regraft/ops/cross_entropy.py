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
# What the kernel of Liger 0.8.5 is given: for losses without class weights, caps and further
# results, not divided by the number of rows.
_CONSTANTS = {
    "weight_ptr": None,
    "z_loss_ptr": None,
    "token_accuracy_ptr": None,
    "token_accuracy_stride": 0,
    "predicted_tokens_ptr": None,
    "predicted_tokens_stride": 0,
    "n_non_ignore": 1,
    "sum_non_ignore_weight": 1,
    "weight_sum": 0.0,
    "lse_square_scale": 0.0,
    "reduction": "none",
    "softcap": None,
    "RETURN_Z_LOSS": False,
    "RETURN_TOKEN_ACCURACY": False,
    "RETURN_PREDICTED_TOKENS": False,
    "HAS_WEIGHT": False,
    "HAS_SOFTCAPPING": False,
}
_VARIABLES = (
    *("X_ptr", "X_stride", "Y_ptr", "Y_stride", "loss_ptr", "loss_stride", "n_cols"),
    *("ignore_index", "label_smoothing", "BLOCK_SIZE", "HAS_GRADIENTS"),
)


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
    is_counted = target != ignore_index
    is_valid = ~is_counted | ((target >= 0) & (target < x.shape[1]))
    torch._assert_async(is_valid.all(), "a target is out of bounds")
    rows = _losses_by_liger(x, target, ignore_index, label_smoothing)
    if reduction == "none":
        return rows
    total = rows.sum(dtype=torch.float32)
    return (total if reduction == "sum" else total / is_counted.sum()).to(x.dtype)


def row_losses(x: torch.Tensor, target: torch.Tensor, ignore_index: int) -> torch.Tensor:
    """Return the cross entropy of each row, by Liger's kernel where it runs; the caller has checked
    that the targets are classes or to be ignored."""
    if cross_entropy_implementation(x, target) != "liger":
        return functional.cross_entropy(x, target, ignore_index=ignore_index, reduction="none")
    return _losses_by_liger(x, target, ignore_index, 0.0)


def _losses_by_liger(
    x: torch.Tensor, target: torch.Tensor, ignore_index: int, label_smoothing: float
) -> torch.Tensor:
    """Return the loss of each row by Liger's kernel."""
    needs_gradient = torch.is_grad_enabled() and x.requires_grad
    return _cross_entropy_kernel(ignore_index, label_smoothing, needs_gradient)(x, target)


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
    if not fits or torch.is_autocast_enabled(x.device.type):
        return "reference"
    return "liger" if _takes_arguments() else "reference"


@functools.cache
def _takes_arguments() -> bool:
    """Return whether the kernel of the installed Liger has the parameters that it is given here."""
    kernel = liger_module("cross_entropy").liger_cross_entropy_kernel  # type: ignore[union-attr]
    return set(kernel.arg_names) == {*_CONSTANTS, *_VARIABLES}


def _warps(x: torch.Tensor) -> int:
    """Return the number of warps that Liger gives a block of the kernel."""
    if torch.version.hip:
        return 16
    is_blackwell = x.is_cuda and torch.cuda.get_device_capability(x.device) >= (10, 0)
    return 8 if x.element_size() == 2 and is_blackwell else 32


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
        labels = target.contiguous()
        rows = torch.zeros(len(x), dtype=x.dtype, device=x.device)
        # Liger's own function would wait for the device three times, to check the targets
        module.liger_cross_entropy_kernel[(len(x),)](
            X_ptr=logits,
            X_stride=logits.stride(0),
            Y_ptr=labels,
            Y_stride=labels.stride(0),
            loss_ptr=rows,
            loss_stride=rows.stride(0),
            n_cols=x.shape[1],
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            BLOCK_SIZE=min(module.MAX_FUSED_SIZE, 1 << (x.shape[1] - 1).bit_length()),
            HAS_GRADIENTS=needs_gradient,
            num_warps=_warps(x),
            **_CONSTANTS,
        )
        return rows, ((logits,) if needs_gradient else ())

    def backward(
        inputs: tuple[torch.Tensor, ...], saved: tuple[torch.Tensor, ...], gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        return saved[0] * gradient.unsqueeze(1), None

    return LigerKernel(forward, backward, None)
