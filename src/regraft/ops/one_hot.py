"""Products with one-hot vectors, by looking up the elements that the vectors choose."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional

from regraft.ops.plain import are_kernels_forced, are_tensors, can_read

# Numbers of multiplications below which the composition is as fast.
_LEAST_PRODUCTS = 1 << 20
_LEAST_CHOICES = 1 << 16
# Number of rows up to which a product in float32 gives their numbers exactly.
_MOST_CLASSES = 1 << 24


def one_hot_matmul(
    index: torch.Tensor, classes: int, weight: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """Return `one_hot(index, classes).to(dtype) @ weight` as an embedding.

    Shapes: `index` is any, `weight` is `(classes, D)`, the result `(*index.shape, D)`. An index
    out of range, and a weight that is not finite, whose every number the product multiplies by
    zero, run as the composition.
    """
    if one_hot_matmul_implementation(index, classes, weight, dtype) == "torch-native":
        return functional.embedding(index_to_keep(index, weight), weight)
    return one_hot_matmul_reference(index, classes, weight, dtype)


def one_hot_matmul_reference(
    index: torch.Tensor, classes: int, weight: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """Compute the composition that the op replaces; `dtype` may be any argument of `Tensor.to`."""
    return functional.one_hot(index, classes).to(dtype) @ weight


def one_hot_matmul_implementation(
    index: torch.Tensor, classes: int, weight: torch.Tensor, dtype: torch.dtype
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    if not are_tensors(index, weight) or weight.dim() != 2 or dtype is not weight.dtype:
        return "reference"
    if not _lookup_pays(index.numel() * weight.numel(), _LEAST_PRODUCTS):
        return "reference"
    if not can_look_up(index, weight):
        return "reference"
    is_exact = has_classes(index, classes, weight.shape[0]) and is_finite(weight)
    return "torch-native" if is_exact else "reference"


def one_hot_rows(vectors: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return `vectors @ weight` as an embedding, for one-hot vectors that the model has anyway.

    Shapes: `vectors` is `(..., K)`, `weight` is `(K, D)`, the result `(..., D)`. All numbers of the
    vectors are zero or one, as the rule has seen. The index of the one is found by a product with
    the numbers of the columns. Vectors without a one or with several, and a weight that is not
    finite, whose every number the product multiplies by zero, run as the composition.
    """
    index = _chosen_rows(vectors, weight)
    return vectors @ weight if index is None else functional.embedding(index, weight)


def one_hot_rows_reference(vectors: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    return vectors @ weight


def one_hot_rows_implementation(vectors: torch.Tensor, weight: torch.Tensor) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    return "reference" if _chosen_rows(vectors, weight) is None else "torch-native"


def _chosen_rows(vectors: Any, weight: Any) -> torch.Tensor | None:
    """Return the index of the one in each vector; None where the composition is to run."""
    if not are_tensors(vectors, weight) or weight.dim() != 2 or vectors.dim() == 0:
        return None
    classes = weight.shape[0]
    if vectors.shape[-1] != classes or classes > _MOST_CLASSES:
        return None
    if not _are_vectors_read(vectors, weight):
        return None
    if not _lookup_pays(vectors.numel() * weight.shape[1], _LEAST_PRODUCTS):
        return None
    rows = vectors.detach().reshape(-1, classes)
    flat = rows.reshape(-1)
    if torch.dot(flat, flat).item() != len(rows) or not is_finite(weight):
        return None
    index = torch.mv(rows, torch.arange(classes, dtype=rows.dtype)).to(torch.int64)
    lowest, highest = torch.aminmax(index)
    if lowest.item() < 0 or highest.item() >= classes:
        return None
    is_one = rows.gather(1, index.unsqueeze(1)) == 1
    return index.reshape(vectors.shape[:-1]) if is_one.all().item() else None


def _are_vectors_read(vectors: torch.Tensor, weight: torch.Tensor) -> bool:
    """Return whether both tensors are on CPU in one format in which the numbers of rows are exact,
    their elements may be looked at, and no gradient of the vectors is wanted."""
    if vectors.dtype is not weight.dtype or vectors.dtype not in (torch.float32, torch.float64):
        return False
    if vectors.requires_grad and torch.is_grad_enabled():
        return False
    return (
        vectors.is_cpu
        and weight.is_cpu
        and vectors.layout is weight.layout is torch.strided
        and can_read()
        and not torch.is_autocast_enabled("cpu")
    )


def one_hot_select(
    values: torch.Tensor, index: torch.Tensor, classes: int, *, dtype: Any = None, dim: int = -1
) -> torch.Tensor:
    """Return `(one_hot(index, classes) * values).sum(dim)` by looking up the chosen values.

    Shapes: `values` is `(*index.shape, classes)`, the result has that of `index`. With a
    `dtype` the one-hot vectors are converted to it. An index out of range, and values that are not
    finite, all of which the composition multiplies by zero, run as the composition; so does a sum
    over another dimension than the last.
    """
    if one_hot_select_implementation(values, index, classes, dtype=dtype, dim=dim) == "reference":
        return one_hot_select_reference(values, index, classes, dtype=dtype, dim=dim)
    return values.gather(-1, index_to_keep(index, values).unsqueeze(-1)).squeeze(-1)


def one_hot_select_reference(
    values: torch.Tensor, index: torch.Tensor, classes: int, *, dtype: Any = None, dim: int = -1
) -> torch.Tensor:
    """Compute the composition that the op replaces."""
    chosen = functional.one_hot(index, classes)
    return ((chosen if dtype is None else chosen.to(dtype)) * values).sum(dim)


def one_hot_select_implementation(
    values: torch.Tensor, index: torch.Tensor, classes: int, *, dtype: Any = None, dim: int = -1
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    if not are_tensors(index, values) or not pays_to_choose(values):
        return "reference"
    shape = values.shape
    if index.shape != shape[:-1] or not (dtype is None or dtype is values.dtype):
        return "reference"
    if dim not in (-1, values.dim() - 1) or not can_look_up(index, values):
        return "reference"
    is_exact = has_classes(index, classes, shape[-1]) and is_finite(values)
    return "torch-native" if is_exact else "reference"


def can_look_up(index: torch.Tensor, table: torch.Tensor) -> bool:
    """Return whether both are on CPU, and their elements may be looked at."""
    return (
        index.dtype is torch.int64
        and table.is_floating_point()
        and index.is_cpu
        and table.is_cpu
        and index.layout is table.layout is torch.strided
        and can_read()
        and not torch.is_autocast_enabled("cpu")
    )


def index_to_keep(index: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Return the index, or a copy of it where the backward pass needs it, until which the model may
    change the index: one-hot vectors do not change with it."""
    return index.clone() if table.requires_grad and torch.is_grad_enabled() else index


def pays_to_choose(values: torch.Tensor) -> bool:
    """Return whether a choice among so many values is worth a look at all of them."""
    return _lookup_pays(values.numel(), _LEAST_CHOICES)


def _lookup_pays(products: int, least: int) -> bool:
    """Return whether so many products are worth a look at all indices and numbers."""
    return products > 0 and (products >= least or are_kernels_forced())


def has_classes(index: torch.Tensor, classes: int, count: int) -> bool:
    """Return whether there are `count` classes and each index is one of them."""
    if type(classes) is not int or classes != count:
        return False
    lowest, highest = torch.aminmax(index)
    return bool(lowest.item() >= 0 and highest.item() < count)


def is_finite(table: torch.Tensor) -> bool:
    """Return whether all numbers are finite; False also where their sum is too large."""
    return math.isfinite(table.detach().sum().item())
