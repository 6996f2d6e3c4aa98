"""Test changes of functions that round, which differ for halves or whole numbers alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from verdicts import verdict_on  # noqa: E402

from regraft.verification.child.checks.replaced_roundings import (  # noqa: E402
    MET_HALVES,
    MET_WHOLE,
    replaced_roundings,
    rounding_results,
)

pytestmark = pytest.mark.usefixtures("here")

QUANTIZER = """\
import torch
from torch import nn


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Quantizer(nn.Module):
    def __init__(self, dim=8, bits=4):
        super().__init__()
        self.high = 2 ** (bits - 1) - 1
        self.weight = nn.Parameter(torch.randn(dim, dim))

    def forward(self, hidden_states):
        scale = self.weight.detach().abs().amax(dim=1, keepdim=True) / self.high
        weight = Round.apply((self.weight / scale).clamp(-self.high, self.high)) * scale
        return hidden_states @ weight.t()
"""
ROUND = "torch.round(x)"


@pytest.mark.slow
def test_a_rounding_that_never_met_a_half_is_not_replaced_by_another(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, QUANTIZER, ROUND, "torch.floor(x + 0.5)")
    assert verdict.status == "unproven"
    assert f"in the original, on line 8, `{ROUND}` never {MET_HALVES[1]}" in verdict.reason


@pytest.mark.slow
def test_another_spelling_of_the_same_rounding_is_proved(tmp_path: Path) -> None:
    assert verdict_on(tmp_path, QUANTIZER, ROUND, "x.round()").status == "proved"


def test_the_functions_that_one_version_alone_calls_are_replaced() -> None:
    trees = [ast.parse(text) for text in ("x.round() + floor(y)", "torch.floor(x + 0.5)")]
    assert replaced_roundings(*trees) == {"round"}
    assert replaced_roundings(trees[1], trees[0]) == set()
    assert replaced_roundings(ast.parse("x.round_()"), trees[0]) == set()


def test_numbers_that_are_rounded_show_events() -> None:
    up, down = MET_HALVES
    for numbers, events in {
        (0.2, -1.7): set(),
        (1.5,): {up},
        (-0.5,): {up},
        (0.5, 2.5): {down},
        (-1.5,): {down},
        (3.0,): {*MET_WHOLE},
    }.items():
        assert set(rounding_results((torch.tensor(numbers),), None)) == events
    assert not set(rounding_results((torch.tensor(0.5, dtype=torch.bfloat16),), None))
    assert set(rounding_results((2.4,), None)) == {up, down, *MET_WHOLE}
    rounded = torch.tensor([2.0])
    assert set(rounding_results((rounded,), rounded)) == {up, down, *MET_WHOLE}
