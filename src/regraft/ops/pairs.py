"""The layout of two tensors that are broadcast against each other, as rows of a matrix product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regraft.ops.plain import are_kernels_forced, are_tensors, is_transformed

_DTYPES = (torch.float32, torch.float64)
_ELEMENTS_FOR_A_PAIR = 4  # of which the steps after the products cost as much as a pair of these
_LEAST_WIDTH = 3


@dataclass(frozen=True, slots=True)
class Pairs:
    """Two tensors whose broadcast operation pairs each row of `first` with each of `second`.

    first      `(batch, N, width)`
    second     `(batch, K, width)`
    rows       the shape of a sum over the width of `first` alone, among the dimensions of the
               result
    columns    likewise for `second`
    """

    first: torch.Tensor
    second: torch.Tensor
    rows: torch.Size
    columns: torch.Size

    @property
    def shape(self) -> torch.Size:
        """The shape of the result: a number for each pair."""
        return torch.broadcast_shapes(self.rows, self.columns)


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
    if not (are_tensors(x, y) and _may_pay(x, y, dim, least) and _can_multiply(x, y)):
        return None
    if not expanded:
        return _layout(x, y, dim, least) or _layout(y, x, dim, least)
    pairs = pairs_of(unexpanded(x, dim), unexpanded(y, dim), dim, least=least)
    if pairs is None:
        return None
    shape = list(torch.broadcast_shapes(x.shape, y.shape))
    del shape[dim]
    return pairs if list(pairs.shape) == shape else None


def _layout(x: torch.Tensor, y: torch.Tensor, dim: int, least: int) -> Pairs | None:
    """Return the layout of `x` and `y` if the result has the dimensions of `x` before those of
    `y`."""
    count = max(x.dim(), y.dim())
    shapes = [(1,) * (count - tensor.dim()) + tuple(tensor.shape) for tensor in (x, y)]
    wide = [shape[dim] for shape in shapes]
    rows, columns = (_without(shape, dim % count) for shape in shapes)
    split = _split(rows, columns)
    if split is None or wide[0] != wide[1]:
        return None
    batch = torch.Size(rows[:split]).numel()
    if batch != torch.Size(columns[:split]).numel() or not _pays(rows, columns, wide[0], least):
        return None
    first, second = (
        tensor.reshape(shape).movedim(dim, -1).reshape(batch, -1, wide[0])
        for tensor, shape in zip((x, y), shapes, strict=True)
    )
    return Pairs(first, second, torch.Size(rows), torch.Size(columns))


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


def _may_pay(x: torch.Tensor, y: torch.Tensor, dim: int, least: int) -> bool:
    """Return whether two tensors are large enough, whatever their layout: a quick test, since small
    ones are most in need of it."""
    longer = x if x.dim() >= y.dim() else y
    if type(dim) is not int or not -longer.dim() <= dim < longer.dim():
        return False
    width = max(longer.shape[dim], 1)
    most_elements = x.numel() * y.numel() / width
    most_cost = most_elements * (1 + _ELEMENTS_FOR_A_PAIR / width)
    return most_cost >= least or are_kernels_forced()


def _can_multiply(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Return whether a matrix product of two tensors is exact to their dtype and is PyTorch's."""
    return (
        x.dtype == y.dtype
        and x.dtype in _DTYPES
        and x.device.type == y.device.type == "cpu"
        and x.layout == y.layout == torch.strided
        and not is_transformed()
        and not torch.is_autocast_enabled("cpu")
        and _multiplies_exactly()
    )


def _multiplies_exactly() -> bool:
    """Return whether matrix products in float32 on CPU are computed in float32, the default."""
    products = getattr(torch.backends.mkldnn, "matmul", None)
    if products is not None:  # the setting since PyTorch 2.9, which the older one changes, too
        return bool(products.fp32_precision in ("none", "ieee"))
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


def _pays(rows: Sequence[int], columns: Sequence[int], width: int, least: int) -> bool:
    """Return whether a product is faster than the composition for these sizes; one that is empty
    never is."""
    pairs = math.prod(map(max, rows, columns)) if min((*rows, *columns)) else 0
    elements = pairs * width
    if not elements:
        return False
    if are_kernels_forced():
        return True
    cost = elements + _ELEMENTS_FOR_A_PAIR * pairs
    return width >= _LEAST_WIDTH and cost >= least
