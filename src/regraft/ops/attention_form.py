"""Scores of attention in the form of arguments of a kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Form:
    """The scores `scale * query @ key.transpose(-1, -2) + bias`, or their softmax if `soft` is
    true, or the transpose of that softmax if `transposed` is true as well.

    Shapes: `query` is `(..., L, E)`, `key` `(..., S, E)`. `bias` broadcasts to `(*lead, L, S)`,
    where `lead` are the leading sizes of the scores to which the bias was added; the leading sizes
    of the query may arrange the same rows in another way. `fill` is the highest number that
    replaced scores; the bias adds it to them instead. The boolean `fill_mask` has the shape of the
    bias and is true where scores were replaced. `adds_mask` is true if the bias also holds a mask
    that the model adds.
    """

    query: torch.Tensor
    key: torch.Tensor
    scale: float = 1.0
    bias: torch.Tensor | None = None
    lead: tuple[int, ...] = ()
    fill: float = -math.inf
    fill_mask: torch.Tensor | None = None
    adds_mask: bool = False
    soft: bool = False
    transposed: bool = False


def snapshot(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of a tensor that no other code can change.

    The copy has one element in memory for all elements that a broadcast dimension (of stride 0)
    repeats. A hook on the tensor sees the gradient of every repetition, as if each repetition was
    copied.
    """
    if any(
        not stride and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)
    ):
        copied: torch.Tensor = _Copy.apply(tensor)
        return copied
    return tensor.clone()


class _Copy(torch.autograd.Function):  # type: ignore[misc]
    """The identity by a copy in which a broadcast dimension has one element in memory."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        size = tensor.shape
        for dimension, stride in enumerate(tensor.stride()):
            if not stride and size[dimension] > 1:
                tensor = tensor.narrow(dimension, 0, 1)
        return tensor.clone().expand(size)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor) -> torch.Tensor:
        return tangent


def is_lowest(number: float, meta: torch.Tensor) -> bool:
    """Return whether a score is lost in rounding when it is added to a number in the dtype of
    `meta`."""
    return bool(number <= torch.finfo(meta.dtype).min)
