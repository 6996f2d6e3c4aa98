"""The slices of a tensor along a dimension, for a loop that takes them one after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from regraft.ops.plain import are_tensors

# Microseconds on one core, forward and backward: for each slice of those that are made together,
# for a subscript, and for each element of the gradient that its backward pass writes.
_SLICE = 2.0
_SUBSCRIPT = 10.0
_ELEMENT = 3e-4
_ASKS_DYNAMO = torch.__version__ >= (2, 13)


def slices_along(x: torch.Tensor, dim: int) -> Sequence[torch.Tensor]:
    """Return what gives `x[:, i]` (for `dim` 1) as its item `i`: the slices of `x` along `dim`.

    Shapes: each slice is `x` without the dimension. The backward pass of a subscript `x[:, i]`
    writes a gradient of the size of `x`, for each `i` anew; that of the slices writes it once.
    They are views of `x`, which PyTorch does not let anyone change in place where gradients are
    recorded. A loop may take a few of many slices: they are made together once subscripts have
    taken about as long. An `x` that is no plain tensor or lacks the dimension gives its slices one
    by one, as the subscript does. So does any `x` in `torch.jit.trace`, and in a compiler one of a
    size that may change: a graph with all slices would be that of one size.
    """
    if slices_along_implementation(x, dim) != "torch-native":
        return slices_along_reference(x, dim)
    patience = _SLICE * x.shape[dim] / (_SUBSCRIPT + _ELEMENT * x.numel())
    if patience < 1 or torch.compiler.is_compiling():
        return _Slices(x, dim, together=x.unbind(dim))
    return _Slices(x, dim, patience)


class _Slices(Sequence[torch.Tensor]):
    """The slices of a tensor, or of what else takes such subscripts: each is made when it is taken,
    until more than `patience` were taken, and then all together. A number that is a tensor, which
    may add a dimension, is always a subscript."""

    def __init__(
        self,
        x: Any,
        dim: int,
        patience: float = math.inf,
        together: tuple[torch.Tensor, ...] | None = None,
    ) -> None:
        self._x, self._dim, self._patience = x, dim, patience
        self._together = together

    def __len__(self) -> int:
        size: int = self._x.shape[self._dim]
        return size

    def __getitem__(self, index: Any) -> Any:
        is_number = type(index) is int
        if is_number and self._together is not None:
            return self._together[index]
        if is_number and self._patience < 1:
            self._together = self._x.unbind(self._dim)
            return self._together[index]
        self._patience -= is_number
        if self._dim == 0:
            return self._x[index]
        if self._dim > 0:
            return self._x[(*(slice(None),) * self._dim, index)]
        return self._x[(..., index, *(slice(None),) * (-self._dim - 1))]


def slices_along_reference(x: torch.Tensor, dim: int) -> Sequence[torch.Tensor]:
    """Return the slices that the op replaces."""
    return _Slices(x, dim)


def slices_along_implementation(x: torch.Tensor, dim: int) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    if not are_tensors(x) or x.layout != torch.strided or x.is_nested:
        return "reference"
    if not -x.dim() <= dim < x.dim():
        return "reference"
    is_traced = torch.jit.is_tracing() or not _is_static(x.shape[dim])
    return "reference" if is_traced else "torch-native"


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
