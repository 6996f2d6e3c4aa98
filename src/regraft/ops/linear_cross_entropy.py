"""Cross entropy of the output of a Linear layer, without all of its logits in memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regraft.ops.plain import are_tensors, is_plain, is_transformed, linear_operands

CHUNK = 256  # number of rows of logits that exist at once


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
    """Return `cross_entropy(linear(x), target)`, by PyTorch's `linear_cross_entropy`, CHUNK rows at
    a time.

    Shapes: `x` is `(..., H)`, the logits `(..., C)`. `shift` leaves out the last position of the
    last but one dimension of the logits; `flat` reshapes them to `(-1, classes)`, by default to
    `(-1, C)`. `target` is `(N)` for the resulting N rows of logits; the result has no dimensions,
    or is `(N)` without reduction. `linear` and `layer` (a `torch.nn.CrossEntropyLoss`, with its
    settings) are the model's own modules. Gradients are computed in the forward pass: a second
    backward pass and second derivatives raise RuntimeError. Arguments that the chunked kernel does
    not take, or not faster, run as the original does: other dtypes than float32, class weights,
    label smoothing, no more rows than CHUNK, no more classes than `H`, modules that are not plain,
    and tracing.
    """
    settings: dict[str, Any] = {"shift": shift, "flat": flat, "classes": classes, "layer": layer}
    settings |= {"ignore_index": ignore_index, "reduction": reduction}
    if linear_cross_entropy_implementation(x, target, linear, **settings) != "torch-native":
        return linear_cross_entropy_reference(x, target, linear, **settings)
    if layer is not None:
        ignore_index, reduction = layer.ignore_index, layer.reduction
    rows = (x[..., :-1, :] if shift else x).reshape(-1, x.shape[-1])
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=CHUNK)
    loss = functional.linear_cross_entropy(
        rows,
        linear.weight,
        target,
        linear_bias=linear.bias,
        ignore_index=ignore_index,
        reduction=reduction,
        options=options,
    )
    result: torch.Tensor = _DifferentiableOnce.apply(loss)
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
    result: torch.Tensor = (
        functional.cross_entropy(logits, target, **options)
        if layer is None
        else layer(logits, target)
    )
    return result


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
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    if not hasattr(nn, "LinearCrossEntropyOptions") or not _are_rows_many(x, shift):
        return "reference"
    if not is_plain(linear, nn.Linear) or not _is_plain_loss(layer):
        return "reference"
    if not _kernel_takes_tensors(x, target, linear) or not _are_inputs(x, linear, flat):
        return "reference"
    reduction = reduction if layer is None else layer.reduction
    if reduction not in ("mean", "sum") or classes not in (None, linear.out_features):
        return "reference"
    if target.dtype != torch.int64 or target.shape != (_count_rows(x, shift),):
        return "reference"
    chunking_pays = linear.out_features > linear.in_features
    is_autocast = torch.is_autocast_enabled(x.device.type)
    return "torch-native" if chunking_pays and not is_autocast else "reference"


def _are_rows_many(x: Any, shift: bool) -> bool:
    """Return whether `x` is a tensor with more rows than one chunk, outside of tracing."""
    if not are_tensors(x) or is_transformed():
        return False
    return x.dim() >= 2 and _count_rows(x, shift) > CHUNK


def _kernel_takes_tensors(x: torch.Tensor, target: torch.Tensor, linear: Any) -> bool:
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


def _is_plain_loss(layer: Any) -> bool:
    """Return whether a loss is None or a plain `torch.nn.CrossEntropyLoss` without class weights
    and label smoothing."""
    if layer is None:
        return True
    is_plain_layer = is_plain(layer, nn.CrossEntropyLoss)
    return is_plain_layer and layer.weight is None and not layer.label_smoothing


def _count_rows(x: torch.Tensor, shift: bool) -> int:
    """Return the number of rows of `x`, with `shift` without the last position of each sequence."""
    *_, positions, features = x.shape
    count = positions * features
    return x.numel() // count * (positions - shift) if count else 0


class _DifferentiableOnce(torch.autograd.Function):  # type: ignore[misc]
    """The identity, which raises RuntimeError for a second derivative; the kernel would not raise
    an error."""

    @staticmethod
    def forward(ctx: Any, loss: torch.Tensor) -> torch.Tensor:
        return loss.view_as(loss)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            raise RuntimeError("derivative for linear_cross_entropy_backward is not implemented")
        return gradient
