"""Standardization over several dimensions, as in instance and batch normalisation by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch.nn import functional

from regraft.ops.plain import are_overridden, is_forward_mode
from regraft.ops.variance import reduced_axes, variance


def standardize_along(
    x: torch.Tensor,
    dims: Sequence[int],
    eps: float,
    *,
    unbiased: bool = True,
    by_squares: bool = False,
) -> torch.Tensor:
    """Return `(x - mean(x, dims)) / sqrt(var(x, dims) + eps)`.

    Shapes: the result has the shape and the strides of `x`. With `by_squares` the
    variance is the biased one, which the source computes as the mean of the squares of the centred
    elements. Over the last dimensions of a contiguous tensor this is PyTorch's layer
    normalisation, over all but the channels (dimension 1) in training its batch normalisation.
    What is left, and half precision, runs as the composition, with the op `variance`.
    """
    implementation = standardize_along_implementation(
        x, dims, eps, unbiased=unbiased, by_squares=by_squares
    )
    if implementation == "reference":
        if by_squares or type(unbiased) is not bool:
            return standardize_along_reference(
                x, dims, eps, unbiased=unbiased, by_squares=by_squares
            )
        centred = x - x.mean(dims, keepdim=True)
        return centred / torch.sqrt(variance(x, dims, unbiased=unbiased, keepdim=True) + eps)
    count = math.prod(x.shape[axis] for axis in dims)
    is_biased = by_squares or not unbiased
    share = 1.0 if is_biased else (count - 1) / count  # of the unbiased variance in the biased one
    if implementation == "layer-norm":
        result = functional.layer_norm(x, x.shape[x.dim() - len(dims) :], eps=eps * share)
    else:
        result = functional.batch_norm(x, None, None, training=True, eps=eps * share)
    return result if is_biased else result * share**0.5


def standardize_along_reference(
    x: torch.Tensor,
    dims: Sequence[int],
    eps: float,
    *,
    unbiased: bool = True,
    by_squares: bool = False,
) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    centred = x - x.mean(dims, keepdim=True)
    spread = (
        (centred**2).mean(dims, keepdim=True)
        if by_squares
        else x.var(dims, unbiased=unbiased, keepdim=True)
    )
    return centred / torch.sqrt(spread + eps)


def standardize_along_implementation(
    x: torch.Tensor,
    dims: Sequence[int],
    eps: float,
    *,
    unbiased: bool = True,
    by_squares: bool = False,
) -> str:
    """Name the implementation for these arguments: "layer-norm", "batch-norm" or "reference"."""
    if not isinstance(x, torch.Tensor) or not _is_eager(x) or not x.numel():
        return "reference"
    if type(unbiased) is not bool or type(eps) is not float or not eps > 0:
        return "reference"
    axes = _axes(x, dims)
    if axes is None or math.prod(x.shape[axis] for axis in axes) == 1:
        return "reference"
    if axes == tuple(range(x.dim() - len(axes), x.dim())):
        return "layer-norm" if has_usual_strides(x) else "reference"
    is_of_channels = axes == (0, *range(2, x.dim()))
    return "batch-norm" if is_of_channels and _suits_batch_norm(x) else "reference"


def _is_eager(x: torch.Tensor) -> bool:
    """Return whether a tensor is of an ordinary kind, in float32 or float64, and nothing records,
    overrides or transforms operations on it. A recorded epsilon would be that of one size."""
    if x.dtype not in (torch.float32, torch.float64) or x.is_nested or x.layout != torch.strided:
        return False
    is_recorded = torch.compiler.is_compiling() or torch._C._is_tracing()
    return not (is_recorded or are_overridden(x) or is_forward_mode())


def _suits_batch_norm(x: torch.Tensor) -> bool:
    """Return whether PyTorch's batch normalisation gives a result with the strides of a tensor, is
    faster than the composition, and takes sums in float64: its kernel for the layout channels-last
    adds all elements of a channel one after another, in float32."""
    return bool(has_usual_strides(x) and torch.is_grad_enabled() and x.requires_grad)


def _axes(x: torch.Tensor, dims: Sequence[int]) -> tuple[int, ...] | None:
    """Return dimensions of `x` in their order, counted from the front; None where `dims` are
    anything else than numbers of several different ones."""
    are_several = type(dims) in (tuple, list) and len(dims) > 1
    return reduced_axes(x, dims) if are_several else None


def has_usual_strides(x: torch.Tensor) -> bool:
    """Return whether a tensor is contiguous, with the strides of a new tensor also in dimensions of
    size one."""
    size = 1
    for length, stride in zip(reversed(x.shape), reversed(x.stride()), strict=True):
        if stride != size:
            return False
        size *= length
    return True
