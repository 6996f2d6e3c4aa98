"""A network that stands in for one that a class takes as an argument, such as the `net` of a
wrapper that generates with any network.

Reproducers contain this file from its first class on.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class StandInNetwork(nn.Module):  # type: ignore[misc]  # torch does not type it
    """Takes tokens, for which it gives logits, or real numbers, of which it gives as many; further
    arguments change nothing. With `results` above 1 it gives a tuple of so many, of which each is
    rolled further along the last dimension and multiplied by another number."""

    TOKENS = 128  # number of tokens

    def __init__(self, results: int = 1) -> None:
        super().__init__()
        self.results = results
        numbers = torch.arange(self.TOKENS, dtype=torch.float32)
        self.table = nn.Parameter(torch.sin(numbers[:, None] * 0.7 + numbers * 1.3))
        self.scale = nn.Parameter(torch.tensor(0.9))

    def forward(self, x: torch.Tensor, *_args: Any, **_keywords: Any) -> Any:
        """Return logits for tokens, `(..., TOKENS)`, and real numbers multiplied by a weight."""
        is_number = x.is_floating_point() or x.is_complex()
        result = x * self.scale if is_number else self.table[x.long() % self.TOKENS]
        if self.results == 1:
            return result
        return tuple(result.roll(number, -1) * (0.5 * number + 1) for number in range(self.results))

    def __repr__(self) -> str:
        return f"StandInNetwork({self.results})"
