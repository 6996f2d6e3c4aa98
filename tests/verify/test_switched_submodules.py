"""Test changes that act only where submodules are in another mode than the module around them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from regraft.verification import verify
from regraft.verification.child.torch_modes import (
    SWITCHED,
    switched_submodules,
    with_switched_submodules,
)

pytestmark = pytest.mark.usefixtures("here")

HEAD = """\
import torch
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
"""
STATELESS = f"""\
{HEAD}        self.bn = nn.BatchNorm1d(dim)

    def forward(self, x):
        y = self.fc(x)
        bn = self.bn
        return F.batch_norm(y, bn.running_mean, bn.running_var, bn.weight, bn.bias, bn.training)
"""
NORM = f"""\
{HEAD}        self.bn = nn.BatchNorm1d(dim)

    def forward(self, x):
        return self.bn(self.fc(x))
"""
BY_OWN_MODE = """\
if self.training:
            self.bn.num_batches_tracked.add_(1)
        bn, y = self.bn, self.fc(x)
        return F.batch_norm(
            y, bn.running_mean, bn.running_var, bn.weight, bn.bias, MODE, bn.momentum
        )"""
DROPOUT = f"""\
{HEAD}        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.drop(self.fc(x))
"""
# The text, a line of it, and a wrong and a right line in its place.
CASES = {
    "statistics": (STATELESS, "bn.training)", "self.training)", "self.bn.training)"),
    "frozen normalisation": (
        NORM,
        "return self.bn(self.fc(x))",
        BY_OWN_MODE.replace("MODE", "self.training"),
        BY_OWN_MODE.replace("MODE", "bn.training").replace(
            "if self.training", "if self.bn.training"
        ),
    ),
    "dropout": (
        DROPOUT,
        "self.drop(self.fc(x))",
        "F.dropout(self.fc(x), self.drop.p, self.training)",
        "F.dropout(self.fc(x), self.drop.p, self.drop.training)",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_submodules_are_compared_in_the_other_mode(case: str, tmp_path: Path) -> None:
    text, before, wrong, right = CASES[case]
    path = tmp_path / "model.py"
    path.write_text(text)
    (refuted,) = verify(path, text.replace(before, wrong).encode(), contract="results")
    assert (refuted.status, SWITCHED in refuted.reason) == ("refuted", True), refuted
    (proved,) = verify(path, text.replace(before, right).encode(), contract="results")
    assert proved.status == "proved", proved
    domain = proved.evidence["domain"]
    assert isinstance(domain, dict)
    assert SWITCHED in domain["modes"]


class Custom(nn.Module):
    """Scales in training."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if self.training else x


def test_only_submodules_that_read_their_mode_are_switched() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Dropout(0.1)), Custom())
    assert switched_submodules(model) == (model[1], model[2])
    assert switched_submodules(None) == ()
    for training in (True, False):
        model.train(training)
        with with_switched_submodules(model, SWITCHED):
            modes = [model[0].training, model[1][1].training, model[2].training]
            assert modes == [training, not training, not training]
            assert model[1][1].p == (0.25 if training else 0.0)
        assert all(module.training == training for module in model.modules())
        assert model[1][1].p == 0.1
