"""The slices of a tensor along a dimension, for a loop that takes them one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from regraft.ops.plain import are_tensors

# making a slice takes less than a microsecond; a loop may take a few of many slices
_MOST_SLICES = 1 << 14
_ASKS_DYNAMO = torch.__version__ >= (2, 13)


def slices_along(x: torch.Tensor, dim: int) -> Sequence[torch.Tensor]:
    """Return what gives `x[:, i]` (for `dim` 1) as its item `i`: the slices of `x` along `dim`.

    Shapes: each slice is `x` without the dimension. The backward pass of a subscript `x[:, i]`
    writes a gradient of the size of `x`, for each `i` anew; that of the slices writes it once.
    They are views of `x`, which PyTorch does not let anyone change in place where gradients are
    recorded. An `x` that is no plain tensor, lacks the dimension, or has more than 16,384 slices,
    of which the loop may take a few only, gives them one by one, as the subscript does. So does
    any `x` in `torch.jit.trace`, and in a compiler one of a size that may change: a graph with all
    slices would be that of one size.
    """
    if slices_along_implementation(x, dim) == "torch-native":
        slices: tuple[torch.Tensor, ...] = x.unbind(dim)
        return slices
    return slices_along_reference(x, dim)


class _Subscripts(Sequence[torch.Tensor]):
    """The slices of a tensor, or of what else takes such subscripts, each made when it is taken."""

    def __init__(self, x: Any, dim: int) -> None:
        self._x, self._dim = x, dim

    def __len__(self) -> int:
        size: int = self._x.shape[self._dim]
        return size

    def __getitem__(self, index: Any) -> Any:
        if self._dim == 0:
            return self._x[index]
        if self._dim > 0:
            return self._x[(*(slice(None),) * self._dim, index)]
        return self._x[(..., index, *(slice(None),) * (-self._dim - 1))]


def slices_along_reference(x: torch.Tensor, dim: int) -> Sequence[torch.Tensor]:
    """Return the slices that the op replaces."""
    return _Subscripts(x, dim)


def slices_along_implementation(x: torch.Tensor, dim: int) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    if not are_tensors(x) or x.layout != torch.strided or x.is_nested:
        return "reference"
    if not -x.dim() <= dim < x.dim():
        return "reference"
    if torch.jit.is_tracing() or not _is_static(x.shape[dim]):
        return "reference"
    return "torch-native" if x.shape[dim] <= _MOST_SLICES else "reference"


def _is_static(size: int) -> bool:
    """Return whether a size is the same in all runs of a graph that is being made, if any.

    The answer is False in a compiler before PyTorch 2.13, which may not follow the question.
    """
    if not torch.compiler.is_compiling():
        return isinstance(size, int)  # no symbol of `make_fx` or of an export
    if not _ASKS_DYNAMO:
        return False
    from torch.fx.experimental.symbolic_shapes import has_static_value

    return bool(has_static_value(size))
