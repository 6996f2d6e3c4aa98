"""The cross entropy of a Linear layer's output, and its gradients, a few rows of logits at a
time."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from regraft.ops.cross_entropy import row_losses
from regraft.ops.linear_sources import LinearSources, source_gradients


@dataclass(slots=True, eq=False)
class RowsLossRecord:
    """A loss that was computed by rows.

    scores   the logits of the loss; None until their gradients are watched
    aliases  the views of the sources from which the logits were computed
    """

    scores: torch.Tensor | None = None
    aliases: tuple[torch.Tensor | None, ...] = ()


@dataclass(frozen=True, slots=True)
class RowsLossOptions:
    """The settings of a loss by rows, with its selections and steps from the record of its
    logits."""

    selections: tuple[Callable[[torch.Tensor], torch.Tensor], ...]
    steps: tuple[Callable[[torch.Tensor], torch.Tensor], ...]
    ignore_index: int
    reduction: str
    dtype: torch.dtype
    cast: torch.dtype | None
    row_loss: RowsLossRecord
    sources: weakref.ref[LinearSources]


class RowsLoss(torch.autograd.Function):  # type: ignore[misc]
    """The cross entropy of `steps(linear(rows))` and its gradients, some rows at a time, as in
    Liger's fused loss."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        target: torch.Tensor,
        options: RowsLossOptions,
    ) -> torch.Tensor:
        sources = (rows, weight, bias)
        with torch.autocast(rows.device.type, enabled=False):
            converted = [
                source if source is None else source.to(options.cast or source.dtype)
                for source in sources
            ]
            loss, gradients = _loss_and_gradients(
                converted, ctx.needs_input_grad[:3], target, options
            )
        gradients = [
            source_gradient if source_gradient is None else source_gradient.to(source.dtype)
            for source_gradient, source in zip(gradients, sources, strict=True)
        ]
        ctx.options = options
        ctx.save_for_backward(target, *gradients)
        return loss

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("derivative for liger_backward is not implemented")
        options, (target, *gradients) = ctx.options, ctx.saved_tensors
        sources = options.sources()
        if sources is not None:
            sources.remember_bits()
        if options.row_loss.scores is not None:
            needed = ctx.needs_input_grad[:3]
            return *_gradients_through_scores(target, options, needed, gradient), None, None
        return *(None if saved is None else saved * gradient for saved in gradients), None, None


def _gradients_through_scores(
    target: torch.Tensor,
    options: RowsLossOptions,
    needed: tuple[bool, ...],
    gradient: torch.Tensor,
) -> list[torch.Tensor | None]:
    """Compute the gradients of rows, weight and bias, where they are needed, through the watched
    logits of a loss."""
    row_loss = options.row_loss
    with torch.enable_grad():
        loss = functional.cross_entropy(
            row_loss.scores,
            target,
            ignore_index=options.ignore_index,
            reduction=options.reduction,
        )
    input_gradient, *parameter_gradients = source_gradients(
        loss, row_loss.aliases, needed, gradient
    )
    if input_gradient is not None:
        for select in options.selections:
            input_gradient = select(input_gradient)
    return [input_gradient, *parameter_gradients]


def _loss_and_gradients(
    sources: list[Any], needed: tuple[bool, ...], target: torch.Tensor, options: RowsLossOptions
) -> tuple[torch.Tensor, list[Any]]:
    """Compute the loss of all rows, and its gradients in float32 for rows, weight and bias where
    they are needed."""
    rows, weight, bias = sources
    is_counted = target != options.ignore_index
    is_valid = ~is_counted | ((target >= 0) & (target < len(weight)))
    torch._assert_async(is_valid.all(), "a target is out of bounds")
    count = is_counted.sum() if options.reduction == "mean" else target.new_ones(())
    # in float32, because they are sums of many parts
    gradients = [
        torch.zeros_like(source, dtype=torch.float32) if is_needed else None
        for source, is_needed in zip(sources, needed, strict=True)
    ]
    total = torch.zeros((), dtype=torch.float32, device=rows.device)
    chunk_size = rows_at_once(len(rows), weight.shape[1], len(weight))
    for start in range(0, len(rows), chunk_size):
        chunk, labels = rows[start : start + chunk_size], target[start : start + chunk_size]
        loss, logits_gradient = _chunk_loss_and_gradient(
            functional.linear(chunk, weight, bias), labels, count.clamp(min=1), options
        )
        total += loss
        if gradients[0] is not None:
            gradients[0][start : start + chunk_size] = logits_gradient @ weight
        if gradients[1] is not None:
            gradients[1] += logits_gradient.t() @ chunk
        if gradients[2] is not None:
            gradients[2] += logits_gradient.sum(0)
    # the mean is NaN if all rows are ignored
    return (total / (count > 0)).to(options.dtype), gradients


def _chunk_loss_and_gradient(
    logits: torch.Tensor, target: torch.Tensor, count: torch.Tensor, options: RowsLossOptions
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the share of a chunk of rows in the loss, and its gradient for the logits of the
    Linear layer."""
    # hooks on saved tensors (checkpoints use them to compute tensors again) are not for this graph,
    # which ends here
    with (
        torch.enable_grad(),
        torch.autograd.graph.saved_tensors_hooks(torch.Tensor.detach, lambda tensor: tensor),
    ):
        logits.requires_grad_()
        scores = logits
        for step in options.steps:
            scores = step(scores)
        losses = row_losses(scores, target, options.ignore_index)
        loss = losses.sum(dtype=torch.float32) / count
        (gradient,) = torch.autograd.grad(loss, logits)
    return loss.detach(), gradient


def rows_at_once(rows: int, features: int, classes: int) -> int:
    """Return the number of rows, a power of two, whose logits take about as much memory as the
    layer's input."""
    row_count = -(-rows // -(-classes // features))
    return 1 << (row_count - 1).bit_length()
