"""Test modules whose `forward` other code calls directly, which runs no hooks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from verdicts import verdict_on

from regraft.verify.child.record import recording

pytestmark = pytest.mark.usefixtures("here")

MODEL = """\
import torch
from torch import nn


class Inner(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x, factor):
        return self.linear(x) * factor


class Outer(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.inner = Inner(width)

    def forward(self, x):
        return self.inner.forward(x, torch.tensor(2.0)) + 1
"""


def test_its_calls_are_replayed(tmp_path: Path) -> None:
    before = "self.linear(x) * factor"
    right = verdict_on(tmp_path, MODEL, before, "factor * self.linear(x)")
    assert right.status == "proved", right.reason
    assert "inner" in str(right.evidence["instances"])
    wrong = verdict_on(tmp_path, MODEL, before, "self.linear(x) * factor.clamp(max=3)")
    assert wrong.status != "proved"


class Leaf(nn.Module):  # type: ignore[misc]
    """Adds to its input."""

    def forward(self, x: torch.Tensor, number: int = 1) -> torch.Tensor:
        return x + number


class Tree(nn.Module):  # type: ignore[misc]
    """Calls its leaf in both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.leaf = Leaf()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.leaf.forward(self.leaf(x), number=2)


def test_each_call_is_recorded_once_and_the_model_is_as_before() -> None:
    model = Tree()
    state = dict(vars(model.leaf))
    with recording(sys.modules[__name__], ("Leaf",), model) as recorder:
        assert torch.equal(model(torch.zeros(2)), torch.full((2,), 3.0))
        assert torch.equal(model(torch.zeros(3)), torch.full((3,), 3.0))
    assert [sorted(entry.call.kwargs) for entry in recorder.calls] == [[], ["number"], []]
    assert vars(model.leaf) == state and not model.leaf._forward_pre_hooks
