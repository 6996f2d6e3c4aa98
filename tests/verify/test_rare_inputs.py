"""Test changes that act only where results of layers are equal, or where what lengths exclude is
NaN."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from verdicts import verdict_on  # noqa: E402

from regraft.verification.child.call_arguments import Call  # noqa: E402
from regraft.verification.child.checks.value_variants import with_undefined_end  # noqa: E402
from regraft.verification.child.parameter_alterations import PAIRED, alteration_of  # noqa: E402

pytestmark = pytest.mark.usefixtures("here")

PEAKS = """\
import torch
from torch import nn


class Peaks(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.gate = nn.Linear(dim, dim)

    def forward(self, x):
        scores = self.gate(x)
        peak = scores.amax(dim=-1, keepdim=True)
        return scores * 2 - peak
"""
STEPS = """\
import torch
from torch import nn


class Steps(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.cell = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor = None):
        state = torch.zeros_like(x[:, 0])
        for step in range(x.shape[1]):
            new = torch.tanh(self.cell(state) + x[:, step])
            if lengths is not None:
                alive = (step < lengths).to(x.dtype).unsqueeze(-1)
                new = alive * new + (1 - alive) * state
            state = new
        return state
"""


@pytest.mark.slow
def test_the_gradient_of_equal_results_is_shared_or_not(tmp_path: Path) -> None:
    wrong = verdict_on(
        tmp_path, PEAKS, "scores.amax(dim=-1, keepdim=True)", "scores.max(-1, keepdim=True).values"
    )
    assert wrong.status == "refuted" and PAIRED in wrong.reason
    right = verdict_on(tmp_path, PEAKS, "scores * 2 - peak", "2 * scores - peak")
    assert right.status == "proved", right


@pytest.mark.slow
def test_what_lengths_exclude_may_be_nan(tmp_path: Path) -> None:
    wrong = verdict_on(
        tmp_path,
        STEPS,
        "alive * new + (1 - alive) * state",
        "torch.where(alive.bool(), new, state)",
    )
    assert wrong.status == "refuted" and "NaN at the last position" in wrong.reason
    right = verdict_on(
        tmp_path, STEPS, "alive * new + (1 - alive) * state", "(1 - alive) * state + alive * new"
    )
    assert right.status == "proved", right


def test_rows_in_pairs_and_ends_without_numbers() -> None:
    alteration = alteration_of(PAIRED)
    assert alteration is not None
    assert alteration("weight", torch.tensor([1.0, 2.0, 3.0])).tolist() == [1.0, 1.0, 3.0]
    assert alteration("scale", torch.tensor(1.0)) is None
    call = with_undefined_end(Call((torch.zeros(2, 3, 4), torch.zeros(2, 3)), {}, "mask given"))
    assert call.args[0][:, -1].isnan().all() and not call.args[0][:, :-1].isnan().any()
    assert not call.args[1].isnan().any()
    assert call.label == "mask given, values: NaN at the last position"
