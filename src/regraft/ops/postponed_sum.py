"""Postponed sums of two tensors, which the kernel of a norm may compute while it reads the
terms."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from regraft.ops.postponed import PostponedTensor, creation_modes


@dataclass(slots=True, eq=False)
class Sum:
    """The record of a postponed sum.

    gradients  whether gradients were enabled when the sum was made
    inference  whether inference mode was enabled when the sum was made
    value      the elements; None until they are computed
    """

    terms: tuple[torch.Tensor, torch.Tensor]
    gradients: bool = field(default_factory=torch.is_grad_enabled)
    inference: bool = field(default_factory=torch.is_inference_mode_enabled)
    value: torch.Tensor | None = None

    def compute(self) -> torch.Tensor:
        """Compute the elements in the graph of the terms, once, and return them."""
        if self.value is None:
            with creation_modes(self.terms[0], gradients=self.gradients, inference=self.inference):
                self.value = torch.add(*self.terms)
        return self.value

    def ordinary_tensor(self, tensor: PostponedTensor) -> torch.Tensor:
        return self.compute()

    def defer(self, function: Any, args: Any, kwargs: Any) -> None:
        return None

    def watch(self, tensor: PostponedTensor, function: Any, args: Any, kwargs: Any) -> bool:
        return False


class _SumEdge(torch.autograd.Function):  # type: ignore[misc]
    """The node of a postponed sum in the graph, for other code that differentiates the sum
    itself."""

    @staticmethod
    def forward(ctx: Any, record: Sum, *terms: torch.Tensor) -> torch.Tensor:
        meta = torch.empty_like(terms[0], device="meta")
        return PostponedTensor.of(record, meta, terms[0].device)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor, torch.Tensor]:
        return None, gradient, gradient


def postponed_sum(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, Sum]:
    """Return `x + y`, postponed, and its record; both tensors have one shape, dtype and device."""
    record = Sum((x, y))
    result: torch.Tensor = _SumEdge.apply(record, x, y)
    return result, record


def pending_sum_record(value: Any) -> Sum | None:
    """Return the record of a postponed sum whose elements are not computed yet; None for any other
    value."""
    record = value.record if isinstance(value, PostponedTensor) else None
    return record if isinstance(record, Sum) and record.value is None else None
