"""Test functions that make tensors from plain numbers, or take tensors in dictionaries."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from verdicts import verdict_on

pytestmark = pytest.mark.usefixtures("here")

NOISE = """\
import torch


def noise(rows, columns, scale=1, device=None):
    block = torch.randn((rows, columns), device=device)
    return block * scale
"""

TABLE = """\
import torch
from torch import nn


def angles(dim: int, end: int, theta: float = 10000.0):
    rates = 1.0 / (theta ** (torch.arange(0, dim, 2).float() / dim))
    return torch.outer(torch.arange(end), rates)


class Turn(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.width = width

    def forward(self, x):
        table = angles(self.width, x.shape[1])
        return x * torch.cos(torch.cat((table, table), -1))
"""

PARTS = """\
import torch
from torch import nn


def blend(parts, factor=1.0):
    left, right = parts["left"], parts["right"]
    return left.clamp(min=-20.0) * factor + right


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.a = nn.Linear(width, width)
        self.b = nn.Linear(width, width)

    def forward(self, x):
        return blend({"left": torch.tanh(self.a(x)), "right": self.b(x)})
"""


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        (PARTS, ".clamp(min=-20.0)", ""),
        (PARTS, " * factor", ""),
        (NOISE, "(rows, columns)", "(columns, rows)"),
        (NOISE, "block * scale", "block * (scale * scale)"),
        (TABLE, "1.0 / (theta **", "1.0 / (10000.0 **"),
        (TABLE, "torch.arange(end)", "torch.arange(min(end, 17))"),
    ],
)
def test_a_change_that_other_numbers_show_is_refuted(
    text: str, before: str, after: str, tmp_path: Path
) -> None:
    verdict = verdict_on(tmp_path, text, before, after)
    assert verdict.status == "refuted", verdict


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        (PARTS, "left.clamp(min=-20.0) * factor + right", "right + factor * left.clamp(min=-20.0)"),
        (NOISE, "block * scale", "scale * block"),
        (TABLE, "torch.outer(torch.arange(end), rates)", "torch.arange(end)[:, None] * rates"),
    ],
)
def test_an_equal_way_to_make_a_tensor_is_proved(
    text: str, before: str, after: str, tmp_path: Path
) -> None:
    verdict = verdict_on(tmp_path, text, before, after)
    assert verdict.status == "proved", verdict.reason
    number = {PARTS: "factor=0.5", NOISE: "rows=3", TABLE: "theta=5000.0"}[text]
    assert number in str(verdict.evidence["domain"])
