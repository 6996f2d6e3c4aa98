"""Test results in floats of eight bits, in which PyTorch does not compute."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from verdicts import verdict_on  # noqa: E402

TEXT = """
import torch
from torch import nn


class Quantized(nn.Module):
    def forward(self, x):
        y = x * torch.sigmoid(x)
        return y.to(torch.float8_e4m3fn)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "status"),
    [
        ("torch.nn.functional.silu(x)", "proved"),
        ("torch.nn.functional.silu(x) * 1.5", "refuted"),
        ("(x * torch.sigmoid(x)).masked_fill(x > 1, float('nan'))", "refuted"),
    ],
)
@pytest.mark.usefixtures("here")
def test_numbers_may_be_neighbours(after: str, status: str, tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, TEXT, "x * torch.sigmoid(x)", after)
    assert verdict.status == status, verdict.reason
