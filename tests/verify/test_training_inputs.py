"""Test models that run in training on inputs with fewer dimensions than in evaluation."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from verdicts import verdict_on

pytestmark = pytest.mark.usefixtures("here")

AVERAGE = """\
import torch
from torch import nn


class Average(nn.Module):
    def __init__(self, width=8, decay=0.9):
        super().__init__()
        self.decay = decay
        self.register_buffer("mean", torch.zeros(width))

    def forward(self, x):
        if self.training:
            self.mean.mul_(self.decay).add_(x.detach().mean(0), alpha=1 - self.decay)
        return x - self.mean
"""
UPDATE = "self.mean.mul_(self.decay).add_(x.detach().mean(0), alpha=1 - self.decay)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("update", "status"),
    [
        ("self.mean.mul_(self.decay).sub_(x.detach().mean(0), alpha=self.decay - 1)", "proved"),
        ("self.mean.mul_(self.decay).add_(x.detach().mean(0), alpha=0.5)", "refuted"),
    ],
)
def test_a_mean_over_rows_is_compared_in_training(update: str, status: str, tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, AVERAGE, UPDATE, update)
    assert verdict.status == status, verdict.reason
