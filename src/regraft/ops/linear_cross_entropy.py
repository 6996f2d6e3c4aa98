"""Cross entropy of the output of a Linear layer, without all of its logits in memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regraft.ops.logits_cross_entropy import (
    gradients_of_logits,
    is_plain_loss,
    logits_cross_entropy_reference,
    loss_of_rows,
    losses_of_scores,
    row_scales,
    turn_into_gradients,
)
from regraft.ops.plain import (
    are_kernels_forced,
    are_overridden,
    are_tensors,
    can_read,
    is_batched,
    is_plain,
    linear_operands,
    versions_of,
)

CHUNK = 256  # the most rows of logits that exist at once
_CHUNK_LOGITS = 1 << 23  # the most logits, of more rows than _FEWEST_ROWS: memory of 32 MiB
_FEWEST_ROWS = 64


def linear_cross_entropy(
    x: torch.Tensor,
    target: torch.Tensor,
    linear: Any,
    *,
    shift: bool = False,
    flat: bool = False,
    classes: int | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    layer: Any = None,
) -> torch.Tensor:
    """Return `cross_entropy(linear(x), target)`, with at most CHUNK rows of logits in memory at a
    time.

    Shapes: `x` is `(..., H)`, the logits `(..., C)`. `shift` leaves out the last position of the
    last but one dimension of the logits; `flat` reshapes them to `(-1, classes)`, by default to
    `(-1, C)`. `target` is `(N)` for the resulting N rows of logits; the result has no dimensions,
    or is `(N)` without reduction. `linear` and `layer` (a `torch.nn.CrossEntropyLoss`, with its
    settings) are the model's own modules. Where gradients are needed, they are computed together
    with the loss, in the forward pass; for second derivatives, and on CPU for an infinite gradient
    of the loss, the backward pass computes all logits. On other devices an infinite gradient of the
    loss gives infinite gradients where the composition may give NaN. Arguments that the chunks do
    not take, or not faster, run as the original does: other dtypes than float32, class weights,
    label smoothing, no reduction, no more rows than CHUNK, no more classes than `H`, modules that
    are not plain, and tracing.
    """
    settings: dict[str, Any] = {"shift": shift, "flat": flat, "classes": classes, "layer": layer}
    settings |= {"ignore_index": ignore_index, "reduction": reduction}
    if linear_cross_entropy_implementation(x, target, linear, **settings) != "chunks":
        return linear_cross_entropy_reference(x, target, linear, **settings)
    if layer is not None:
        ignore_index, reduction = layer.ignore_index, layer.reduction
    rows = (x[..., :-1, :] if shift else x).reshape(-1, x.shape[-1])
    result: torch.Tensor = _ChunkedLinearLoss.apply(
        rows,
        linear.weight,
        linear.bias,
        target,
        ignore_index,
        reduction == "mean",
        torch.is_grad_enabled(),
    )
    return result


def linear_cross_entropy_reference(
    x: torch.Tensor,
    target: torch.Tensor,
    linear: Any,
    *,
    shift: bool = False,
    flat: bool = False,
    classes: int | None = None,
    layer: Any = None,
    **options: Any,
) -> torch.Tensor:
    """Compute the composition that the op replaces, with the modules called as the model calls
    them."""
    logits = linear(x)
    logits = logits[..., :-1, :] if shift else logits
    if flat:
        logits = logits.reshape(-1, logits.shape[-1] if classes is None else classes)
    return logits_cross_entropy_reference(logits, target, layer=layer, **options)


def linear_cross_entropy_implementation(
    x: torch.Tensor,
    target: torch.Tensor,
    linear: Any,
    *,
    shift: bool = False,
    flat: bool = False,
    classes: int | None = None,
    layer: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> str:
    """Name the implementation for these arguments: "chunks" or "reference"."""
    if not _are_rows_enough(x, shift) or not is_plain_loss(layer):
        return "reference"
    if not is_plain(linear, nn.Linear):
        return "reference"
    if not _are_tensors_taken(x, target, linear) or not _are_inputs(x, linear, flat):
        return "reference"
    reduction = reduction if layer is None else layer.reduction
    if reduction not in ("mean", "sum") or classes not in (None, linear.out_features):
        return "reference"
    if target.dtype != torch.int64 or target.shape != (_count_rows(x, shift),):
        return "reference"
    if are_overridden(x, target) or torch.is_autocast_enabled(x.device.type):
        return "reference"
    pays = linear.out_features > (0 if are_kernels_forced() else linear.in_features)
    return "chunks" if pays else "reference"


def _are_rows_enough(x: Any, shift: bool) -> bool:
    """Return whether `x` is a tensor with more rows than one chunk, outside of tracing."""
    if not are_tensors(x) or not can_read() or x.dim() < 2:
        return False
    return _count_rows(x, shift) > (0 if are_kernels_forced() else CHUNK)


def _are_tensors_taken(x: torch.Tensor, target: torch.Tensor, linear: Any) -> bool:
    """Return whether the input and the parameters are float32, and on one device with the
    target."""
    operands = linear_operands(x, linear)
    if any(tensor.dtype != torch.float32 or tensor.device != x.device for tensor in operands):
        return False
    return type(target) is torch.Tensor and target.device == x.device


def _are_inputs(x: torch.Tensor, linear: Any, flat: bool) -> bool:
    """Return whether `x`, of two dimensions or more, is `(N, H)`, or with `flat` `(..., N, H)`, for
    the H of the layer."""
    return bool(x.shape[-1] == linear.in_features) and (flat or x.dim() == 2)


def _count_rows(x: torch.Tensor, shift: bool) -> int:
    """Return the number of rows of `x`, with `shift` without the last position of each sequence."""
    *_, positions, features = x.shape
    count = positions * features
    return x.numel() // count * (positions - shift) if count else 0


class _ChunkedLinearLoss(torch.autograd.Function):  # type: ignore[misc]
    """The cross entropy of `rows @ weight.T + bias`, and its gradients, some rows at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        target: torch.Tensor,
        ignore_index: int,
        is_mean: bool,
        is_grad_enabled: bool,
    ) -> torch.Tensor:
        ctx.ignore_index, ctx.is_mean = ignore_index, is_mean
        operands = rows, weight, bias
        gradients = tuple(
            torch.empty_like(operand, memory_format=torch.contiguous_format)
            if operand is not None and needed and is_grad_enabled
            else None
            for operand, needed in zip(operands, ctx.needs_input_grad, strict=False)
        )
        scales = row_scales(rows.new_ones(()), target, ignore_index, is_mean)
        losses = []
        size = _rows_per_chunk(weight)
        logits, scores = (rows.new_empty(min(size, len(rows)), len(weight)) for _ in range(2))
        for start in range(0, len(rows), size):
            chunk = slice(start, start + size)
            count = len(target[chunk])
            _linear(rows[chunk], weight, bias, logits[:count])
            torch.log_softmax(logits[:count], 1, out=scores[:count])
            losses.append(losses_of_scores(scores[:count], target[chunk], ignore_index))
            if any(gradient is not None for gradient in gradients):
                probabilities = scores[:count].exp_()
                turn_into_gradients(probabilities, target[chunk], scales[chunk])
                _add_gradients(gradients, chunk, rows, weight, probabilities)
        # the composition keeps its input, and the weight if the input has a gradient: a change of
        # what it does not keep may be no error here, either
        kept_weight = weight if ctx.needs_input_grad[0] else None
        ctx.parameters = weight, bias
        ctx.versions = versions_of(ctx.parameters)
        ctx.save_for_backward(rows, kept_weight, target, *gradients)
        return loss_of_rows(torch.cat(losses), target, ignore_index, is_mean)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        rows, _, target, *gradients = ctx.saved_tensors
        if torch.is_grad_enabled() or _is_infinite(gradient):
            weight, bias = ctx.parameters
            if ctx.versions != versions_of(ctx.parameters):
                raise RuntimeError(
                    "the weight or bias was changed in place after"
                    " regraft.ops.linear_cross_entropy computed the loss; second derivatives need"
                    " it unchanged"
                )
            scales = row_scales(gradient, target, ctx.ignore_index, ctx.is_mean)
            probabilities = torch.softmax(functional.linear(rows, weight, bias), 1)
            of_logits = gradients_of_logits(probabilities, target, scales)
            computed = of_logits @ weight, of_logits.t() @ rows, of_logits.sum(0)
            gradients = [
                result if needed else None
                for result, needed in zip(computed, ctx.needs_input_grad, strict=False)
            ]
        else:  # new tensors: what is kept has to stay for a further backward pass
            gradients = _scaled(gradients, target != ctx.ignore_index, gradient)
        return *gradients, None, None, None, None


def _is_infinite(gradient: torch.Tensor) -> bool:
    """Return whether the gradient of a loss on CPU is infinite: times it, finished gradients are
    not what the gradients of logits, infinite or NaN, give."""
    is_readable = gradient.is_cpu and can_read() and not is_batched(gradient)
    return is_readable and bool(gradient.isinf())


def _rows_per_chunk(weight: torch.Tensor) -> int:
    """Return how many rows of logits exist at once, for the weight `(C, H)` of the layer."""
    return max(_FEWEST_ROWS, min(CHUNK, _CHUNK_LOGITS // len(weight)))


def _linear(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, result: torch.Tensor
) -> None:
    """Write the output of a Linear layer, `(n, C)`, to `result`."""
    if bias is None:
        torch.mm(rows, weight.t(), out=result)
    else:
        torch.addmm(bias, rows, weight.t(), out=result)


def _add_gradients(
    gradients: tuple[torch.Tensor | None, ...],
    chunk: slice,
    rows: torch.Tensor,
    weight: torch.Tensor,
    logits_gradient: torch.Tensor,
) -> None:
    """Add what the gradients of some rows of logits, `(n, C)`, give the gradients of rows, weight
    and bias; with the first rows, write it."""
    of_rows, of_weight, of_bias = gradients
    beta = 1 if chunk.start else 0  # with 0, what stands there is not read
    if of_rows is not None:
        torch.mm(logits_gradient, weight, out=of_rows[chunk])
    if of_weight is not None:
        of_weight.addmm_(logits_gradient.t(), rows[chunk], beta=beta)
    if of_bias is not None:
        total = logits_gradient.sum(0)
        of_bias.copy_(total + of_bias if beta else total)


def _scaled(
    gradients: list[torch.Tensor | None], counts: torch.Tensor, gradient: torch.Tensor
) -> list[torch.Tensor | None]:
    """Multiply the gradients of rows, weight and bias by the gradient of the loss, which does not
    reach rows that do not count, not even as NaN."""
    of_rows = torch.where(counts, gradient, 1).unsqueeze(1)
    of_parameters = torch.where(counts.any(), gradient, 1)
    factors = of_rows, of_parameters, of_parameters
    return [
        None if each is None else each * factor
        for each, factor in zip(gradients, factors, strict=True)
    ]
