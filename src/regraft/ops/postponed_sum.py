"""A sum of two tensors that a norm may compute itself, while it reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from regraft.ops.postponed import PostponedTensor, as_made


@dataclass(slots=True, eq=False)
class Sum:
    """How a postponed sum is made: its two terms, the modes it is made in, and its elements once they are computed."""

    terms: tuple[torch.Tensor, torch.Tensor]
    gradients: bool = field(default_factory=torch.is_grad_enabled)
    inference: bool = field(default_factory=torch.is_inference_mode_enabled)
    value: torch.Tensor | None = None

    def compute(self) -> torch.Tensor:
        """The elements, in the graph of the terms."""
        if self.value is None:
            with as_made(self.terms[0], gradients=self.gradients, inference=self.inference):
                self.value = torch.add(*self.terms)
        return self.value

    def plain(self, tensor: PostponedTensor) -> torch.Tensor:
        return self.compute()

    def later(self, function: Any, args: Any, kwargs: Any) -> None:
        return None

    def watch(self, tensor: PostponedTensor, function: Any, args: Any, kwargs: Any) -> bool:
        return False


class _SumEdge(torch.autograd.Function):  # type: ignore[misc]
    """Leads gradients to the terms where a postponed sum itself is differentiated, as by functions of others."""

    @staticmethod
    def forward(ctx: Any, record: Sum, *terms: torch.Tensor) -> torch.Tensor:
        alike = torch.empty_like(terms[0], device="meta")
        return PostponedTensor.of(record, alike, terms[0].device)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor, torch.Tensor]:
        return None, gradient, gradient


def postponed_sum(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, Sum]:
    """`x + y` of two tensors with one shape, dtype and device, and its record."""
    record = Sum((x, y))
    result: torch.Tensor = _SumEdge.apply(record, x, y)
    return result, record


def sum_of(one: Any) -> Sum | None:
    """How a postponed sum is made, while nobody has computed it; None for any other tensor."""
    record = one.record if isinstance(one, PostponedTensor) else None
    return record if isinstance(record, Sum) and record.value is None else None
