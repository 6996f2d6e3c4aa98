"""Test proofs on a user's model of which a call takes too long for thousands of comparisons."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from regraft.verify import Verdict, verify

pytestmark = pytest.mark.usefixtures("here")

MODEL = """\
import time

import torch
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.factors = {}
        self.seconds = 0.0

    def forward(self, x):
        end = time.process_time() + self.seconds
        while time.process_time() < end:
            pass
        return F.gelu(self.linear(x)) * self.factors.get("own", 1.0)
"""
LINE = 'F.gelu(self.linear(x)) * self.factors.get("own", 1.0)'
DRIVER = """\
import torch


def driver(module):
    layer = module.Layer(4)
    layer.factors["own"] = 2.0
    layer.seconds = {seconds}
    return layer, [(torch.randn({rows}, 4),)]
"""


def verdict_on(folder: Path, after: str, seconds: float, rows: int = 3) -> Verdict:
    """Return the verdict on another last line, for a model whose call takes so many seconds."""
    path = folder / "model.py"
    path.write_text(MODEL)
    driver = folder / "own_driver.py"
    driver.write_text(DRIVER.format(seconds=seconds, rows=rows))
    (verdict,) = verify(
        path,
        MODEL.replace(LINE, after).encode(),
        driver=f"{driver}:driver",
        by_rules=True,
        model_classes=("Layer",),
    )
    return verdict


def test_a_slow_model_is_compared_beside_small_ones(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, 'self.factors.get("own", 1.0) * F.gelu(self.linear(x))', 0.1)
    assert verdict.status == "proved", verdict.reason
    models = verdict.evidence["models"]
    assert isinstance(models, list) and len(models) > 1
    assert any(str(name).endswith("own_driver.py:driver") for name in models)


def test_a_difference_that_the_slow_model_alone_shows_is_refuted(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, "F.gelu(self.linear(x))", 0.1)
    assert verdict.status == "refuted"
    assert "own_driver.py:driver" in verdict.reason


def test_a_fast_model_is_the_only_one(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, 'self.factors.get("own", 1.0) * F.gelu(self.linear(x))', 0.0)
    assert verdict.status == "proved", verdict.reason
    models = verdict.evidence["models"]
    assert isinstance(models, list)
    assert {str(name).rpartition("/")[2].partition(" ")[0] for name in models} == {
        "own_driver.py:driver"
    }
