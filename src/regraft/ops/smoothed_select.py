"""Weighted sums over classes, with weights that are smoothed one-hot vectors."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from regraft.ops.one_hot import can_look_up, has_classes, is_finite, pays_to_choose
from regraft.ops.plain import are_tensors


def smoothed_select(
    values: torch.Tensor,
    index: torch.Tensor,
    dim: int,
    *,
    classes: Any = None,
    like: torch.Tensor | None = None,
    dtype: Any = None,
    scale: float = 1.0,
    offset: float = 0.0,
    spread: float = 0.0,
    count: float = 1.0,
) -> torch.Tensor:
    """Return `(weights * values).sum(dim)` by looking up the chosen values, where `weights` is `hot
    * scale + offset + (1 - hot) * spread / count`.

    Shapes: `values` is `(..., C)`, the result `(...)`. `hot` are the one-hot vectors of the index,
    which is `(...)`, over `classes`, converted to `dtype` if there is one. With a tensor `like`, it
    is zeros like this tensor, with ones at the index `(N, 1)` along dimension 1. What is not
    certain to be the same runs as the composition: an index out of range, values that are not
    finite, which zeros make NaN, numbers that are tensors, another dimension than the last one, and
    other devices than CPU.
    """
    options = {"classes": classes, "like": like, "dtype": dtype, "scale": scale}
    options |= {"offset": offset, "spread": spread, "count": count}
    if smoothed_select_implementation(values, index, dim, **options) != "torch-native":
        return smoothed_select_reference(values, index, dim, **options)
    remaining = spread / count
    column = index.unsqueeze(-1) if like is None else index
    chosen = values.gather(-1, column).squeeze(-1) * (scale - remaining)
    elsewhere = offset + remaining
    return chosen + values.sum(-1) * elsewhere if elsewhere else chosen


def smoothed_select_reference(
    values: torch.Tensor,
    index: torch.Tensor,
    dim: Any,
    *,
    classes: Any = None,
    like: torch.Tensor | None = None,
    dtype: Any = None,
    scale: Any = 1.0,
    offset: Any = 0.0,
    spread: Any = 0.0,
    count: Any = 1.0,
) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    if like is None:
        hot = functional.one_hot(index, classes)
        hot = hot if dtype is None else hot.to(dtype)
    else:
        hot = torch.zeros_like(like).scatter(1, index, 1)
    weights = hot
    if not _is_number(scale) or scale != 1.0:
        weights = weights * scale
    if not _is_number(spread) or spread:
        weights = weights + (1 - hot) * spread / count
    if not _is_number(offset) or offset:
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
    scale: Any = 1.0,
    offset: Any = 0.0,
    spread: Any = 0.0,
    count: Any = 1.0,
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    if not are_tensors(index, values) or not pays_to_choose(values):
        return "reference"
    if type(dim) is not int or dim not in (-1, values.dim() - 1):
        return "reference"
    if not all(map(_is_number, (scale, offset, spread, count))) or not count:
        return "reference"
    if not can_look_up(index, values) or not _have_dtype(values, like, dtype):
        return "reference"
    classes_of_values = values.shape[-1]
    if not _has_index_for_rows(values, index, like) or not is_finite(values):
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


def _is_number(number: Any) -> bool:
    """Return whether something is a number of Python."""
    return type(number) in (int, float)


def _have_dtype(values: torch.Tensor, like: torch.Tensor | None, dtype: Any) -> bool:
    """Return whether the smoothed vectors have the number format of the values, float32 or
    float64."""
    if values.dtype not in (torch.float32, torch.float64):
        return False
    if like is not None:
        return are_tensors(like) and like.is_cpu and like.dtype is values.dtype
    return (torch.get_default_dtype() if dtype is None else dtype) is values.dtype
