"""The layout of two tensors that are broadcast against each other, as rows of a matrix product."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from regraft.ops.plain import are_kernels_forced, are_tensors, can_read, is_transformed

_ELEMENTS_FOR_A_PAIR = 4  # of which the steps after the products cost as much as a pair of these
_LEAST_WIDTH = 3
# Reads the setting since PyTorch 2.9, which the older one changes, too.
_READ_PRECISION: Any = getattr(torch._C, "_get_fp32_precision_getter", None)


class Layout(NamedTuple):
    """The sizes of Pairs, for tensors of two shapes.

    rows        the shape of a sum over the width of the first tensor alone, among the dimensions of
                the result
    columns     likewise for the second tensor
    shape       the shape of the result: a number for each pair
    is_swapped  whether the second tensor has the rows
    sizes       the number of matrix products, -1, and the size of the dimension that is summed
    cost        of the composition, in elements that it computes; 0 where a product is not faster
    """

    rows: torch.Size
    columns: torch.Size
    shape: torch.Size
    is_swapped: bool
    sizes: tuple[int, int, int]
    cost: int


class Pairs(NamedTuple):
    """Two tensors whose broadcast operation pairs each row of `first` with each of `second`.

    first      `(batch, N, width)`
    second     `(batch, K, width)`
    sizes      of the result
    """

    first: torch.Tensor
    second: torch.Tensor
    sizes: Layout


def pairs_of(
    x: torch.Tensor, y: torch.Tensor, dim: int, *, least: int, expanded: bool = False
) -> Pairs | None:
    """Return the layout of `x` and `y`, broadcast against each other and reduced over `dim` by an
    operation in which they may change places; None where a matrix product does not compute it, or
    does not pay.

    It pays on CPU, in float32 and float64, for tensors of PyTorch's own class that each have a
    dimension of size one where the other has more.

    least     below this many elements of the broadcast tensor, and four for each pair, the
              composition is as fast
    expanded  `expand` may have stretched both; the result is None where it has added more than the
              pairs
    """
    if not are_tensors(x, y) or type(dim) is not int or not can_read():
        return None
    if expanded:
        return _pairs_of_expanded(x, y, dim, least)
    layout = _layout(x.shape, y.shape, dim, least)
    if layout is None and are_kernels_forced():
        layout = _layout(x.shape, y.shape, dim, 0)
    if layout is None or not _can_multiply(x, y):
        return None
    return _arranged(x, y, dim, layout)


def _pairs_of_expanded(x: torch.Tensor, y: torch.Tensor, dim: int, least: int) -> Pairs | None:
    """Return the layout of two tensors that `expand` may have stretched, as they were before."""
    if not _may_pay(x.shape, y.shape, dim, 0 if are_kernels_forced() else least):
        return None
    if not _can_multiply(x, y):
        return None
    pairs = pairs_of(unexpanded(x, dim), unexpanded(y, dim), dim, least=least)
    if pairs is None:
        return None
    shape = torch.broadcast_shapes(x.shape, y.shape)
    return pairs if pairs.sizes.shape == _without(shape, dim % len(shape)) else None


@functools.lru_cache(maxsize=256)
def _layout(x: torch.Size, y: torch.Size, dim: int, least: int) -> Layout | None:
    """Return the layout of tensors of two shapes; None where a matrix product does not compute
    their operation, or does not pay."""
    if not _may_pay(x, y, dim, least):
        return None
    layout = _layout_in_order(x, y, dim) or _layout_in_order(y, x, dim, is_swapped=True)
    return layout if layout is not None and layout.cost >= least else None


def _may_pay(x: torch.Size, y: torch.Size, dim: int, least: int) -> bool:
    """Return whether tensors of two shapes are large enough, whatever their layout: a quick test,
    since small ones are most in need of it."""
    shape = x if len(x) >= len(y) else y
    if not -len(shape) <= dim < len(shape):
        return False
    width = shape[dim] or 1
    most_pairs = x.numel() * y.numel() / (width * width)
    return bool(most_pairs * (width + _ELEMENTS_FOR_A_PAIR) >= least)


def _layout_in_order(
    x: torch.Size, y: torch.Size, dim: int, is_swapped: bool = False
) -> Layout | None:
    """Return the layout of two shapes if the result has the dimensions of `x` before those of
    `y`."""
    count = max(len(x), len(y))
    padded = [(1,) * (count - len(shape)) + tuple(shape) for shape in (x, y)]
    width, other_width = (shape[dim] for shape in padded)
    rows, columns = (_without(shape, dim % count) for shape in padded)
    split = _split(rows, columns)
    if split is None or width != other_width:
        return None
    batch = torch.Size(rows[:split]).numel()
    if batch != torch.Size(columns[:split]).numel() or not min((*rows, *columns, width)):
        return None
    shape = torch.Size(map(max, rows, columns))
    cost = _cost(shape.numel(), width)
    sizes = (batch, -1, width)
    return Layout(torch.Size(rows), torch.Size(columns), shape, is_swapped, sizes, cost)


def _arranged(x: torch.Tensor, y: torch.Tensor, dim: int, layout: Layout) -> Pairs:
    """Return two tensors in their layout."""
    if layout.is_swapped:
        x, y = y, x
    sizes = layout.sizes
    if dim != -1 and dim != len(layout.shape):
        count = len(layout.shape) + 1
        x, y = (
            tensor.reshape((1,) * (count - tensor.dim()) + tensor.shape).movedim(dim, -1)
            for tensor in (x, y)
        )
    return Pairs(x.reshape(*sizes), y.reshape(*sizes), layout)


def unexpanded(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """Return a tensor whose dimensions beside `dim` that `expand` has stretched have size one, as
    a view of the same memory with the gradient of the tensor's base; the tensor itself where there
    are no such dimensions, or where its own gradient may be looked at."""
    if not are_tensors(tensor) or tensor.layout != torch.strided or is_transformed():
        return tensor
    steps = list(zip(tensor.shape, tensor.stride(), strict=True))
    if type(dim) is not int or not -len(steps) <= dim < len(steps):
        return tensor
    sizes = [
        1 if step == 0 and place != dim % len(steps) else size
        for place, (size, step) in enumerate(steps)
    ]
    source = _view_source(tensor) if sizes != list(tensor.shape) else None
    if source is None:
        return tensor
    return source.as_strided(sizes, tensor.stride(), tensor.storage_offset())


def _view_source(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a tensor with the same memory that gets the gradients: the tensor itself without
    gradients, else its base; None where there is no base, or where hooks see the tensor's own
    gradient."""
    if not (tensor.requires_grad and torch.is_grad_enabled()):
        return tensor
    base = tensor._base
    if base is None or not base.requires_grad or base.dtype != tensor.dtype or tensor.is_leaf:
        return None
    return None if tensor._backward_hooks or tensor.retains_grad else base


def _can_multiply(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Return whether a matrix product of two tensors is exact to their dtype and is PyTorch's."""
    dtype = x.dtype
    if dtype is not y.dtype or not (x.is_cpu and y.is_cpu):
        return False
    if not (x.layout is y.layout is torch.strided) or torch.is_autocast_enabled("cpu"):
        return False
    return (dtype is torch.float32 and _multiplies_exactly()) or dtype is torch.float64


def _multiplies_exactly() -> bool:
    """Return whether matrix products in float32 on CPU are computed in float32, the default."""
    if _READ_PRECISION is not None:  # of `torch.backends.mkldnn.matmul`, in less time
        return _READ_PRECISION("mkldnn", "matmul") in ("none", "ieee")
    precision: str = torch.get_float32_matmul_precision()
    return precision == "highest"


def _without(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    """Return a shape without a dimension."""
    return shape[:dim] + shape[dim + 1 :]


def _split(rows: Sequence[int], columns: Sequence[int]) -> int | None:
    """Return the number of leading dimensions that both shapes have, behind which first `rows` and
    then `columns` has its own; None where the dimensions have another order."""
    kinds = "".join(map(_kind, rows, columns))
    start = len(kinds) - len(kinds.lstrip("=."))
    own = kinds[start:].replace(".", "").lstrip("r").lstrip("c")
    return start if "r" in kinds and "c" in kinds and not own else None


def _kind(row: int, column: int) -> str:
    """Return which of two sizes a dimension of the result has: that of the rows (r), that of the
    columns (c), both (=), or one (.); "!" where they do not fit."""
    if row == column:
        return "." if row == 1 else "="
    return "r" if column == 1 else "c" if row == 1 else "!"


def _cost(pairs: int, width: int) -> int:
    """Return the cost of the composition in elements, 0 where a product is never faster."""
    return pairs * (width + _ELEMENTS_FOR_A_PAIR) if width >= _LEAST_WIDTH else 0
