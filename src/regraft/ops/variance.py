"""Variances and standard deviations along dimensions, which PyTorch computes element by element on
CPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from regraft.ops.plain import are_kernels_forced, are_tensors, can_read, is_batched

# Centred elements are in memory for so many at a time, where the input is contiguous.
_CHUNK_SIZE = 2**18
# Below so many elements PyTorch's own operation is about as fast.
_FEWEST_ELEMENTS = 2**14
# Two passes in the dtype of the input are as accurate as its rounding for variances in this range,
# and above this share of the squared mean; others are computed by PyTorch.
_SMALLEST_VARIANCE = 1e-28
_LARGEST_VARIANCE = 1e36
_SMALLEST_SHARE = 1e-6


def variance(
    x: torch.Tensor,
    dim: int | Sequence[int],
    *,
    unbiased: bool = True,
    correction: float | None = None,
    keepdim: bool = False,
) -> torch.Tensor:
    """Return `x.var(dim)`, with the options of `torch.var`; `unbiased` holds without `correction`.

    Shapes: the result is `x` without the dimensions `dim`, or with sizes of one with `keepdim`. On
    CPU PyTorch follows mean and squares element by element in float64. In float32 and float64 this
    op subtracts the mean, and adds the squares, in two passes. Rows for which that is less accurate
    (their deviation is below a thousandth of their mean, their squares overflow or vanish, or they
    have elements that are not finite) are computed by PyTorch, as are small inputs. The backward
    pass is PyTorch's.
    """
    if variance_implementation(x, dim, unbiased, correction, keepdim) != "torch-native":
        return variance_reference(x, dim, unbiased, correction, keepdim)
    return _two_passes(x, dim, _correction(unbiased, correction), keepdim, is_root=False)


def variance_reference(
    x: torch.Tensor,
    dim: int | Sequence[int],
    unbiased: bool = True,
    correction: float | None = None,
    keepdim: bool = False,
) -> torch.Tensor:
    """Call the method that the op replaces."""
    return x.var(dim, **_stated(unbiased, correction, keepdim))


def variance_implementation(
    x: torch.Tensor,
    dim: int | Sequence[int],
    unbiased: bool = True,
    correction: float | None = None,
    keepdim: bool = False,
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    # What follows the operations would record the comparison of a size, which excludes others.
    if not are_tensors(x) or torch.compiler.is_compiling() or torch._C._is_tracing():
        return "reference"
    if (
        x.is_nested
        or not _has_many_elements(x)
        or not _suits_two_passes(x)
        or type(keepdim) is not bool
    ):
        return "reference"
    axes = reduced_axes(x, dim)
    if axes is None:
        return "reference"
    count = math.prod(x.shape[axis] for axis in axes)
    # PyTorch has another operation for all elements together
    is_supported = _correction(unbiased, correction) < count < x.numel()
    return "torch-native" if is_supported else "reference"


def standard_deviation(
    x: torch.Tensor,
    dim: int | Sequence[int],
    *,
    unbiased: bool = True,
    correction: float | None = None,
    keepdim: bool = False,
) -> torch.Tensor:
    """Return `x.std(dim)`, with the options and the computation of `variance`."""
    if variance_implementation(x, dim, unbiased, correction, keepdim) != "torch-native":
        return standard_deviation_reference(x, dim, unbiased, correction, keepdim)
    return _two_passes(x, dim, _correction(unbiased, correction), keepdim, is_root=True)


def standard_deviation_reference(
    x: torch.Tensor,
    dim: int | Sequence[int],
    unbiased: bool = True,
    correction: float | None = None,
    keepdim: bool = False,
) -> torch.Tensor:
    """Call the method that the op replaces."""
    return x.std(dim, **_stated(unbiased, correction, keepdim))


def standard_deviation_implementation(
    x: torch.Tensor,
    dim: int | Sequence[int],
    unbiased: bool = True,
    correction: float | None = None,
    keepdim: bool = False,
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    return variance_implementation(x, dim, unbiased, correction, keepdim)


def variance_and_mean(
    x: torch.Tensor,
    dim: int | Sequence[int],
    *,
    unbiased: bool = True,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `torch.var_mean(x, dim)`, with the options and the computation of `variance`."""
    if variance_implementation(x, dim, unbiased, correction, keepdim) != "torch-native":
        return variance_and_mean_reference(x, dim, unbiased, correction, keepdim)
    axes = _sorted_axes(x, dim)
    mean = _mean(x, axes)
    if not bool(mean.isfinite().all()):
        return variance_and_mean_reference(x, dim, unbiased, correction, keepdim)
    mean = mean if keepdim else mean.squeeze(axes)
    factor = _correction(unbiased, correction)
    return _two_passes(x, dim, factor, keepdim, is_root=False), mean


def variance_and_mean_reference(
    x: torch.Tensor,
    dim: int | Sequence[int],
    unbiased: bool = True,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Call the function that the op replaces."""
    options = _stated(unbiased, correction, keepdim)
    result: tuple[torch.Tensor, torch.Tensor] = torch.var_mean(x, dim, **options)
    return result


def variance_and_mean_implementation(
    x: torch.Tensor,
    dim: int | Sequence[int],
    unbiased: bool = True,
    correction: float | None = None,
    keepdim: bool = False,
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    return variance_implementation(x, dim, unbiased, correction, keepdim)


def _stated(unbiased: Any, correction: Any, keepdim: Any) -> dict[str, Any]:
    """Return the options that the source states, which are not the defaults: beside a `keepdim`,
    a `dim` that is False would be a dimension, where `x.var(False)` is biased."""
    stated = {} if keepdim is False else {"keepdim": keepdim}
    if correction is not None:
        stated["correction"] = correction
    elif unbiased is not True:
        stated["unbiased"] = unbiased
    return stated


def _has_many_elements(x: torch.Tensor) -> bool:
    """Return whether a tensor has so many elements that two passes pay, or any, where kernels are
    forced."""
    size = x.numel()
    return size >= _FEWEST_ELEMENTS or (size > 0 and are_kernels_forced())


def _suits_two_passes(x: torch.Tensor) -> bool:
    """Return whether a tensor has the kind for which two passes pay, and its elements may decide
    what runs."""
    if not x.is_cpu or x.layout != torch.strided or x.dtype not in (torch.float32, torch.float64):
        return False
    return can_read() and not is_batched(x)


def reduced_axes(x: torch.Tensor, dim: Any) -> tuple[int, ...] | None:
    """Return the dimensions of `x` that an argument `dim` means, in their order, counted from the
    front; None where it is anything else than numbers of dimensions, each of which is mentioned
    once."""
    dims = (dim,) if type(dim) is int else dim
    if type(dims) not in (tuple, list, torch.Size) or not dims:
        return None
    if any(type(axis) is not int or not -x.dim() <= axis < x.dim() for axis in dims):
        return None
    axes = sorted({axis % x.dim() for axis in dims})
    return tuple(axes) if len(axes) == len(dims) else None


def _correction(unbiased: Any, correction: Any) -> float:
    """Return what is subtracted from the number of elements; infinity where an option is unusual,
    which is for PyTorch to judge."""
    if correction is None:
        return int(unbiased) if type(unbiased) is bool else math.inf
    return correction if type(correction) in (int, float) else math.inf


def _two_passes(
    x: torch.Tensor, dim: int | Sequence[int], correction: float, keepdim: bool, *, is_root: bool
) -> torch.Tensor:
    """Return the variance of `x` along dimensions, or with `is_root` its root."""
    dims = _sorted_axes(x, dim)
    if torch.is_grad_enabled() and x.requires_grad:
        result: torch.Tensor = _Variance.apply(x, dims, correction, keepdim, is_root)
        return result
    return _value(x, dims, correction, keepdim, is_root)


def _sorted_axes(x: torch.Tensor, dim: int | Sequence[int]) -> tuple[int, ...]:
    """Return dimensions of `x` in their order, counted from the front."""
    axes = (dim,) if isinstance(dim, int) else dim
    return tuple(sorted(axis % x.dim() for axis in axes))


def _value(
    x: torch.Tensor, dims: tuple[int, ...], correction: float, keepdim: bool, is_root: bool
) -> torch.Tensor:
    """Compute the variance or its root, chunk by chunk along a dimension that is not reduced."""
    if x.numel() <= _CHUNK_SIZE or not x.is_contiguous():
        return _value_of_chunk(x, dims, correction, keepdim, is_root)
    axis = max(
        (axis for axis in range(x.dim()) if axis not in dims), key=lambda axis: x.shape[axis]
    )
    size = max(1, x.shape[axis] * _CHUNK_SIZE // x.numel())
    chunks = [
        _value_of_chunk(chunk, dims, correction, keepdim, is_root) for chunk in x.split(size, axis)
    ]
    return torch.cat(chunks, axis if keepdim else axis - sum(other < axis for other in dims))


def _value_of_chunk(
    x: torch.Tensor, dims: tuple[int, ...], correction: float, keepdim: bool, is_root: bool
) -> torch.Tensor:
    """Compute the variance or its root, with PyTorch's where two passes are not accurate."""
    count = math.prod(x.shape[axis] for axis in dims)
    mean = _mean(x, dims)
    squares = _sum((x - mean).square_(), dims)
    result = squares.mul_(1 / (count - correction))
    least = mean.square_().mul_(_SMALLEST_SHARE).clamp_(min=_SMALLEST_VARIANCE)
    is_accurate = (result > least) & (result < _LARGEST_VARIANCE)
    result = result.sqrt_() if is_root else result
    if not bool(is_accurate.all()):
        _recompute_rows(result, ~is_accurate, x, dims, correction, is_root)
    return result if keepdim else result.squeeze(dims).clone()


def _mean(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    """Return the mean along dimensions, which are kept with a size of one."""
    return _sum(x, dims) / math.prod(x.shape[axis] for axis in dims)


def _sum(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    """Return the sum along dimensions, which are kept with a size of one.

    Where other dimensions lie between them in memory, PyTorch adds the sums of the runs one after
    another, whose rounding errors grow with their number. Here each call adds along what is one
    dimension in memory, which PyTorch adds in a tree.
    """
    runs: list[list[int]] = []
    for axis in sorted(dims, key=x.stride):
        inner = runs[-1][-1] if runs else axis
        if runs and x.stride(axis) == x.stride(inner) * x.shape[inner]:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    for run in sorted(runs, key=lambda axes: math.prod(x.shape[axis] for axis in axes))[::-1]:
        x = x.sum(run, keepdim=True)
    return x


def _recompute_rows(
    result: torch.Tensor,
    is_replaced: torch.Tensor,
    x: torch.Tensor,
    dims: tuple[int, ...],
    correction: float,
    is_root: bool,
) -> None:
    """Write what PyTorch computes into those places of a result, which has sizes of one in its
    reduced dimensions."""
    last = tuple(range(-len(dims), 0))
    places = result.movedim(dims, last).squeeze(last)
    is_replaced = is_replaced.movedim(dims, last).squeeze(last)
    rows = x.movedim(dims, last)[is_replaced]
    # A single row would be a whole tensor, whose variance PyTorch computes otherwise.
    pair = torch.cat((rows, rows)) if len(rows) == 1 else rows
    function = torch.std if is_root else torch.var
    places[is_replaced] = function(pair, last, correction=correction)[: len(rows)]


class _Variance(torch.autograd.Function):  # type: ignore[misc]
    """A variance or its root, with the backward pass of PyTorch's."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        dims: tuple[int, ...],
        correction: float,
        keepdim: bool,
        is_root: bool,
    ) -> torch.Tensor:
        result = _value(x, dims, correction, keepdim, is_root)
        ctx.dims, ctx.correction, ctx.keepdim = dims, correction, keepdim
        ctx.save_for_backward(x, *((result,) if is_root else ()))
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, *roots = ctx.saved_tensors
        for root in roots:
            gradient = (gradient / (root * 2)).masked_fill(root == 0, 0)
        if not ctx.keepdim:
            for axis in ctx.dims:
                gradient = gradient.unsqueeze(axis)
        count = math.prod(x.shape[axis] for axis in ctx.dims)
        factors = (2.0 / (count - ctx.correction)) * gradient
        centred = x - x.mean(ctx.dims, keepdim=True)
        is_plain = not torch.is_grad_enabled() and can_read() and not is_batched(gradient)
        return centred.mul_(factors) if is_plain else centred * factors, None, None, None, None
