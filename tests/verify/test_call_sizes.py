"""Test definitions that models call with several sizes, of which one has its own lines."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from verdicts import verdict_on

from regraft.verification.child.call_arguments import Call, tensors
from regraft.verification.child.call_variants import variants

pytestmark = pytest.mark.usefixtures("here")

MODEL = """\
import torch
from torch import nn


class Cell(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        y = self.linear(x)
        return torch.tanh(y) + x


class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.cell = Cell(width)

    def forward(self, x):
        return self.cell(x).sum() + self.cell(x[:, :3]).sum() + self.cell(x[:, :1]).sum()
"""
LINE = "        return torch.tanh(y) + x"
QUOTIENT = """\
        if y.shape[1] {condition}:
            power = torch.exp(2 * y)
            return (power - 1) / (power + 1) + x
        return torch.tanh(y) + x"""


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["== 1", "< 4"])
def test_values_are_varied_for_every_size_that_the_changed_lines_tell_apart(
    tmp_path: Path, condition: str
) -> None:
    verdict = verdict_on(tmp_path, MODEL, LINE, QUOTIENT.format(condition=condition))
    assert verdict.status == "refuted", verdict.reason


def test_tensors_without_elements_have_variants() -> None:
    call = Call((torch.randn(2, 3), torch.zeros(2, 0), torch.zeros(0)), {})
    shapes = {tuple(tensor.shape for tensor in tensors(variant)) for variant in variants(call)}
    assert ((2, 3), (2, 0), (0,)) in shapes
