"""Test changes that show only once a user has replaced a head or cut layers of the built model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from verdicts import verdict_on

pytestmark = pytest.mark.usefixtures("here")

NET = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, dim=32, depth=3, classes=10):
        super().__init__()
        self.depth = depth
        self.classes = classes
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        scores = self.head(x)
        return scores.view(-1, self.head.out_features)
"""
LOOP = "for layer in self.layers:\n            x = torch.relu(layer(x))"
VIEW = "scores.view(-1, self.head.out_features)"
# a part of the file, a wrong text for it, and words of the reason
WRONG = {
    "a count of the constructor": (
        LOOP,
        "for i in range(self.depth):\n            x = torch.relu(self.layers[i](x))",
        "with one layer less in layers",
    ),
    "a width of the constructor": (
        VIEW,
        "scores.view(-1, self.classes)",
        "with one more output in head",
    ),
}
RIGHT = "scores.view(-1, self.head.weight.shape[0])"


@pytest.mark.slow
@pytest.mark.parametrize("case", WRONG)
def test_layers_that_users_change_refute(tmp_path: Path, case: str) -> None:
    before, after, reason = WRONG[case]
    verdict = verdict_on(tmp_path, NET, before, after)
    assert verdict.status == "refuted"
    assert reason in verdict.reason
    script = [sys.executable, str(verdict.evidence["reproducer"])]
    assert subprocess.run(script, check=False, capture_output=True).returncode == 1


@pytest.mark.slow
def test_sizes_of_the_layers_themselves_are_proved(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, NET, VIEW, RIGHT)
    assert verdict.status == "proved", verdict
