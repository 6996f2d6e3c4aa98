"""Weighted sums over classes, with weights that are smoothed one-hot vectors."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from regraft.ops.one_hot import (
    can_look_up,
    has_classes,
    index_to_keep,
    is_finite,
    pays_to_choose,
)
from regraft.ops.plain import are_tensors


def smoothed_select(
    values: torch.Tensor,
    index: torch.Tensor,
    dim: int,
    *,
    classes: Any = None,
    like: torch.Tensor | None = None,
    dtype: Any = None,
    scale: float | None = None,
    offset: float | None = None,
    spread: float | None = None,
    count: float = 1.0,
) -> torch.Tensor:
    """Return `(weights * values).sum(dim)` by looking up the chosen values, where `weights` is `hot
    * scale + offset + (1 - hot) * spread / count`, without what is None.

    Shapes: `values` is `(..., C)`, the result `(...)`. `hot` are the one-hot vectors of the index,
    which is `(...)`, over `classes`, converted to `dtype` if there is one. With a tensor `like`, it
    is zeros like this tensor, with ones at the index `(N, 1)` along dimension 1. What is not
    certain to be the same runs as the composition: an index out of range, values that are not
    finite, which zeros make NaN, numbers that are tensors or not finite, another dimension than the
    last one, and other devices than CPU.
    """
    options = {"classes": classes, "like": like, "dtype": dtype, "scale": scale}
    options |= {"offset": offset, "spread": spread, "count": count}
    if smoothed_select_implementation(values, index, dim, **options) != "torch-native":
        return smoothed_select_reference(values, index, dim, **options)
    remaining = _share(spread, count)
    index = index_to_keep(index, values)
    column = index.unsqueeze(-1) if like is None else index
    chosen = values.gather(-1, column).squeeze(-1) * ((1.0 if scale is None else scale) - remaining)
    elsewhere = (offset or 0.0) + remaining
    return chosen + values.sum(-1) * elsewhere if elsewhere else chosen


def smoothed_select_reference(
    values: torch.Tensor,
    index: torch.Tensor,
    dim: Any,
    *,
    classes: Any = None,
    like: torch.Tensor | None = None,
    dtype: Any = None,
    scale: Any = None,
    offset: Any = None,
    spread: Any = None,
    count: Any = 1.0,
) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    if like is None:
        hot = functional.one_hot(index, classes)
        hot = hot if dtype is None else hot.to(dtype)
    else:
        hot = torch.zeros_like(like).scatter(1, index, 1)
    weights = hot if scale is None else hot * scale
    if spread is not None:
        weights = weights + (1 - hot) * spread / count
    if offset is not None:
        weights = weights + offset
    return (weights * values).sum(dim)


def smoothed_select_implementation(
    values: torch.Tensor,
    index: torch.Tensor,
    dim: int,
    *,
    classes: Any = None,
    like: torch.Tensor | None = None,
    dtype: Any = None,
    scale: Any = None,
    offset: Any = None,
    spread: Any = None,
    count: Any = 1.0,
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    if not are_tensors(index, values) or not pays_to_choose(values):
        return "reference"
    if type(dim) is not int or dim not in (-1, values.dim() - 1):
        return "reference"
    if not _are_finite(scale, offset, spread, count):
        return "reference"
    if not can_look_up(index, values) or not _have_dtype(values, like, dtype):
        return "reference"
    classes_of_values = values.shape[-1]
    if not _has_index_for_rows(values, index, like) or not is_finite(values.detach().sum(-1)):
        return "reference"
    has_all = has_classes(index, classes if like is None else classes_of_values, classes_of_values)
    return "torch-native" if has_all else "reference"


def _has_index_for_rows(
    values: torch.Tensor, index: torch.Tensor, like: torch.Tensor | None
) -> bool:
    """Return whether there is one index for each row of values."""
    if like is None:
        return bool(index.shape == values.shape[:-1])
    return bool(
        like.shape == values.shape and index.shape == (len(values), 1) and values.dim() == 2
    )


def _share(spread: float | None, count: float) -> float:
    """Return what each of the other classes gets of the spread."""
    return 0.0 if spread is None else spread / count


def _are_finite(
    scale: float | None, offset: float | None, spread: float | None, count: float
) -> bool:
    """Return whether these are None or numbers of Python that are finite in float32, and so is the
    share of the spread."""
    numbers = [number for number in (scale, offset, spread, count) if number is not None]
    if any(type(number) not in (int, float) for number in numbers) or count == 0:
        return False
    largest = torch.finfo(torch.float32).max
    return all(abs(number) <= largest for number in numbers) and (
        abs(_share(spread, count)) <= largest
    )


def _have_dtype(values: torch.Tensor, like: torch.Tensor | None, dtype: Any) -> bool:
    """Return whether the smoothed vectors have the number format of the values, float32 or
    float64."""
    if values.dtype not in (torch.float32, torch.float64):
        return False
    if like is not None:
        return are_tensors(like) and like.is_cpu and like.dtype is values.dtype
    return (torch.get_default_dtype() if dtype is None else dtype) is values.dtype
