"""Test changes that act only where a row of an input is zero."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from verdicts import verdict_on

from regraft.verification.child.call_arguments import Call
from regraft.verification.child.checks.code_constants import Constants
from regraft.verification.child.checks.value_variants import ZERO_ROWS, valued_calls

pytestmark = pytest.mark.usefixtures("here")

LAYER = """\
import math

import torch
from torch import nn


class Normalised(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        length = x.pow(2).mean(-1, keepdim=True).sqrt()
        return x.softmax(-1) * length * self.weight
"""
BEFORE = "x.pow(2).mean(-1, keepdim=True).sqrt()"


def test_a_first_row_of_zeros_is_tried() -> None:
    call = Call((torch.ones(3, 4, 2), torch.ones(4)), {})
    (changed_call,) = (
        changed
        for changed in valued_calls(call, Constants(), None, not_finite=())
        if changed.beyond == ZERO_ROWS
    )
    rows, vector = changed_call.args
    assert rows.sum((1, 2)).tolist() == [0.0, 8.0, 8.0]
    assert vector.tolist() == [1.0] * 4
    assert bool(call.args[0].all())


def test_a_gradient_that_is_undefined_in_the_original_alone_is_a_difference(tmp_path: Path) -> None:
    after = "torch.linalg.vector_norm(x, dim=-1, keepdim=True) / math.sqrt(x.shape[-1])"
    verdict = verdict_on(tmp_path, LAYER, BEFORE, after)
    assert verdict.status == "refuted", verdict.reason
    assert "the gradient of" in verdict.reason
    assert "NaN on one side, that of the original" in verdict.reason


@pytest.mark.slow
def test_a_gradient_that_is_undefined_in_both_versions_is_none(tmp_path: Path) -> None:
    after = "torch.sqrt((x * x).mean(dim=-1, keepdim=True))"
    verdict = verdict_on(tmp_path, LAYER, BEFORE, after)
    assert verdict.status == "proved", verdict.reason
