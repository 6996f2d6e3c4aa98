"""Test definitions that were proved beside changes which are gone: they are compared once more."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from regraft.verification import verify

pytestmark = pytest.mark.usefixtures("here")

MODEL = """\
import torch
from torch import nn


class First(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return self.linear(x) * 2 + 1


class Second(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.first = First(width)

    def forward(self, x):
        return torch.tanh(self.first(x)) * 3
"""
RIGHT = MODEL.replace("self.linear(x) * 2 + 1", "1 + 2 * self.linear(x)")


@pytest.mark.slow
def test_a_proved_definition_is_compared_once(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    (full,) = verify(path, RIGHT.encode())
    (brief,) = verify(path, RIGHT.encode(), confirmed=("First",))
    assert full.status == brief.status == "proved"
    assert brief.evidence["dtypes"] == ["float32"] and brief.evidence["seeds"] == [0]
    assert 0 < int(str(brief.evidence["replays"])) < int(str(full.evidence["replays"])) / 20


def test_a_difference_is_refuted_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    (verdict,) = verify(path, MODEL.replace("* 2 + 1", "* 2 + 1.1").encode(), confirmed=("First",))
    assert verdict.status == "refuted"


def test_a_definition_that_nothing_runs_is_not_confirmed(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    text = MODEL.replace("(self, width=8):\n        super", "(self, width: open):\n        super")
    text = text.replace("nn.Linear(width, width)", "nn.Linear(*width.sizes_of_nobody())")
    path.write_text(text)
    changed = text.replace("self.linear(x) * 2 + 1", "1 + 2 * self.linear(x)")
    (verdict,) = verify(path, changed.encode(), confirmed=("First",))
    assert verdict.status == "unproven" and "nothing ran" in verdict.reason


@pytest.mark.slow
def test_beside_another_change_nothing_is_shortened(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    changed = RIGHT.replace("torch.tanh(self.first(x)) * 3", "3 * torch.tanh(self.first(x))")
    verdicts = verify(path, changed.encode(), confirmed=("First",))
    assert [verdict.status for verdict in verdicts] == ["proved", "proved"]
    assert all(len(verdict.evidence["seeds"]) == 2 for verdict in verdicts)  # type: ignore[arg-type]
