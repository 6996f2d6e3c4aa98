"""Test that results which depend on random numbers are compared under the same numbers, also with
the original in float64."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from verdicts import verdict_on

pytestmark = pytest.mark.usefixtures("here")

CHOICE = """\
import torch
from torch import nn


class Choice(nn.Module):
    def __init__(self, width=8, options=4):
        super().__init__()
        self.head = nn.Linear(width, options)

    def forward(self, x, tau: float = 1.0):
        uniform = torch.rand_like(x[..., :4]).clamp(1e-6, 1 - 1e-6)
        logits = (self.head(x) - torch.log(-torch.log(uniform))) / tau
        return logits.softmax(-1)
"""

NOISE = """\
import torch
from torch import nn


class Noise(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.dense = nn.Linear(width, 2 * width)

    def forward(self, x):
        mean, deviation = self.dense(x).chunk(2, dim=-1)
        return mean + torch.randn_like(mean) * deviation.exp()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "old", "new", "status"),
    [
        (
            CHOICE,
            "- torch.log(-torch.log(uniform))) / tau",
            "- torch.log(-torch.log(uniform)) / tau)",
            "refuted",
        ),
        (NOISE, "deviation.exp()", "deviation.exp() * 1.001", "refuted"),
        (
            NOISE,
            "mean + torch.randn_like(mean) * deviation.exp()",
            "torch.addcmul(mean, torch.randn_like(mean), deviation.exp())",
            "proved",
        ),
    ],
    ids=["a temperature for the noise alone", "another deviation", "one operation"],
)
def test_changes_of_models_that_draw_numbers(
    source: str, old: str, new: str, status: str, tmp_path: Path
) -> None:
    verdict = verdict_on(tmp_path, source, old, new)
    assert verdict.status == status, verdict.reason
