"""Cross entropy of logits, without their logarithms of softmax in memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regraft.ops.plain import (
    are_kernels_forced,
    are_overridden,
    are_tensors,
    can_read,
    is_batched,
    is_plain,
)

_FEWEST_LOGITS = 1 << 23  # fewer are not worth a second look: memory of 32 MiB is new in every call
_CHUNK_ELEMENTS = 1 << 19  # number of logits that are looked at together
_CHUNKED_DTYPES = (torch.float32, torch.float64)
_CHUNKED_REDUCTIONS = ("mean", "sum")


def logits_cross_entropy(
    x: torch.Tensor,
    target: torch.Tensor,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    layer: Any = None,
) -> torch.Tensor:
    """Return the cross entropy of logits, as `torch.nn.functional.cross_entropy`, some rows at a
    time.

    Shapes: `x` is `(N, C)`, `target` `(N)` with class numbers; the result has no dimensions, or is
    `(N)` without reduction. `layer` is the model's own `torch.nn.CrossEntropyLoss`; its settings
    replace the options. The backward pass computes the softmax again from the logits instead of
    reading it: it needs half the memory. A change of the logits in place before the backward pass
    raises RuntimeError there, also a change that PyTorch does not see. Arguments for which this is
    not written or not faster run as the original does: few logits, other devices than CPU, other
    dtypes than float32 and float64, class weights, label smoothing, a layer that is not plain, no
    reduction, and tracing.
    """
    if not _are_logits_many(x) or not _is_loss_taken(x, target, reduction, layer):
        return logits_cross_entropy_reference(
            x, target, layer=layer, ignore_index=ignore_index, reduction=reduction
        )
    if layer is not None:
        ignore_index, reduction = layer.ignore_index, layer.reduction
    result: torch.Tensor = _ChunkedLoss.apply(x, target, ignore_index, reduction == "mean")
    return result


def logits_cross_entropy_reference(
    x: torch.Tensor, target: torch.Tensor, *, layer: Any = None, **options: Any
) -> torch.Tensor:
    """Call the function, or the module as the model calls it."""
    result: torch.Tensor = (
        functional.cross_entropy(x, target, **options) if layer is None else layer(x, target)
    )
    return result


def logits_cross_entropy_implementation(
    x: torch.Tensor,
    target: torch.Tensor,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    layer: Any = None,
) -> str:
    """Name the implementation for these arguments: "chunks" or "reference"."""
    is_taken = _are_logits_many(x) and _is_loss_taken(x, target, reduction, layer)
    return "chunks" if is_taken else "reference"


def _are_logits_many(x: Any) -> bool:
    """Return whether `x` is a tensor on CPU with so many elements that it pays to look at some at a
    time, outside of tracing."""
    if not can_read() or not are_tensors(x) or not x.is_cpu:
        return False
    return x.numel() >= _FEWEST_LOGITS or (are_kernels_forced() and x.numel() > 0)


def _is_loss_taken(x: torch.Tensor, target: torch.Tensor, reduction: str, layer: Any) -> bool:
    """Return whether the chunks compute the loss of these tensors with these settings."""
    if not is_plain_loss(layer) or are_overridden(x, target) or torch.is_autocast_enabled("cpu"):
        return False
    if type(target) is not torch.Tensor or not target.is_cpu or target.dtype != torch.int64:
        return False
    if x.dim() != 2 or target.shape != x.shape[:1] or x.dtype not in _CHUNKED_DTYPES:
        return False
    return (reduction if layer is None else layer.reduction) in _CHUNKED_REDUCTIONS


def is_plain_loss(layer: Any) -> bool:
    """Return whether a loss is None or a plain `torch.nn.CrossEntropyLoss` without class weights
    and label smoothing."""
    if layer is None:
        return True
    is_plain_layer = is_plain(layer, nn.CrossEntropyLoss)
    return is_plain_layer and layer.weight is None and not layer.label_smoothing


def loss_of_rows(
    rows: torch.Tensor, target: torch.Tensor, ignore_index: int, is_mean: bool
) -> torch.Tensor:
    """Reduce the losses of rows to their sum, or to their mean over the rows that count."""
    total = rows.sum()
    return total / (target != ignore_index).sum() if is_mean else total


def row_scales(
    gradient: torch.Tensor, target: torch.Tensor, ignore_index: int, is_mean: bool
) -> torch.Tensor:
    """Return the gradient of the loss of each row as a column: 0 for a row that does not count."""
    counts = target != ignore_index
    scale = gradient / counts.sum() if is_mean else gradient
    return torch.where(counts, scale, torch.zeros_like(scale)).unsqueeze(1)


def gradients_of_logits(
    probabilities: torch.Tensor, target: torch.Tensor, scales: torch.Tensor
) -> torch.Tensor:
    """Return the gradients of logits, which can be differentiated.

    Shapes: `probabilities`, the softmax of the logits, is `(N, C)`, `target` `(N)`, `scales` `(N,
    1)`, the gradients of the rows' losses. The class number of a row with scale 0 can be any
    number.
    """
    return (probabilities * scales).scatter_add(1, _valid(target, probabilities), -scales)


def turn_into_gradients(
    probabilities: torch.Tensor, target: torch.Tensor, scales: torch.Tensor
) -> None:
    """Change the softmax of logits to `gradients_of_logits`, in place."""
    probabilities.mul_(scales).scatter_add_(1, _valid(target, probabilities), -scales)


def _valid(target: torch.Tensor, probabilities: torch.Tensor) -> torch.Tensor:
    """Return class numbers as a column, with 0 in the place of those that are none."""
    is_class = (target >= 0) & (target < probabilities.shape[1])
    return torch.where(is_class, target, 0).unsqueeze(1)


class _ChunkedLoss(torch.autograd.Function):  # type: ignore[misc]
    """The cross entropy of logits, which keeps nothing but the logits and the losses of rows for
    the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, target: torch.Tensor, ignore_index: int, is_mean: bool
    ) -> torch.Tensor:
        ctx.ignore_index, ctx.is_mean = ignore_index, is_mean
        size = _rows_in_chunk(x)
        losses = torch.cat(
            [
                losses_of_scores(torch.log_softmax(logits, 1), classes, ignore_index)
                for logits, classes in zip(x.split(size), target.split(size), strict=True)
            ]
        )
        ctx.save_for_backward(x, target, losses)
        return loss_of_rows(losses, target, ignore_index, is_mean)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, target, losses = ctx.saved_tensors
        scales = row_scales(gradient, target, ctx.ignore_index, ctx.is_mean)
        if torch.is_grad_enabled() or not can_read() or is_batched(gradient):
            return gradients_of_logits(torch.softmax(x, 1), target, scales), None, None, None
        size = _rows_in_chunk(x)
        result = torch.empty_like(x, memory_format=torch.contiguous_format)
        for chunk, logits, classes, scale, expected in zip(
            *(tensor.split(size) for tensor in (result, x, target, scales, losses)), strict=True
        ):
            torch.log_softmax(logits, 1, out=chunk)
            actual = losses_of_scores(chunk, classes, ctx.ignore_index)
            if not torch.equal(actual.nan_to_num(), expected.nan_to_num()):
                raise RuntimeError(
                    "the logits were changed after regraft.ops.logits_cross_entropy computed their"
                    " loss, which needs them in the backward pass"
                )
            turn_into_gradients(chunk.exp_(), classes, scale)
        return result, None, None, None


def losses_of_scores(scores: torch.Tensor, target: torch.Tensor, ignore_index: int) -> torch.Tensor:
    """Return the loss of each row of logarithms of softmax, `(N, C)`."""
    return functional.nll_loss(scores, target, ignore_index=ignore_index, reduction="none")


def _rows_in_chunk(x: torch.Tensor) -> int:
    """Return how many rows are looked at together."""
    return max(1, _CHUNK_ELEMENTS // int(x.shape[1]))
