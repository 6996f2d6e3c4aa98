"""Test proofs on a user's model of which a call takes too long for thousands of comparisons."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from regraft.verification import Verdict, verify

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


@pytest.mark.slow
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


OWN_ACTIVATION = """\
import os
import time

import torch
from torch import nn

number_of_runs = 0


class Activation(nn.Module):
    def forward(self, x):
        global number_of_runs
        number_of_runs += 1
        end = time.process_time() + 0.1
        while time.process_time() < end:
            pass
        {body}

    def train(self, mode=True):
        return super().train(mode) if number_of_runs < {fatal} else os._exit(9)


def driver(module):
    layer = module.Layer(4)
    layer.activation = Activation()
    return layer, [(torch.zeros(3, 4),), (torch.full((3, 4), 99.0),)]
"""


def verdict_on_activation(folder: Path, body: str, fatal: int = 1000) -> Verdict:
    """Return the verdict on a wrong rewrite of `self.activation(...)`, which only a user's model
    shows whose activation has this body; after `fatal` runs it ends the process."""
    model = MODEL.replace(LINE, "self.activation(self.linear(x))")
    model = model.replace("self.factors = {}", "self.activation = nn.GELU()")
    path = folder / "model.py"
    path.write_text(model)
    driver = folder / "own_driver.py"
    driver.write_text(OWN_ACTIVATION.format(body=body, fatal=fatal))
    (verdict,) = verify(
        path,
        model.replace("self.activation(self.linear(x))", "F.gelu(self.linear(x))").encode(),
        driver=f"{driver}:driver",
        contract="results",
        by_rules=True,
        model_classes=("Layer",),
    )
    return verdict


@pytest.mark.slow
def test_every_call_of_a_slow_model_is_compared(tmp_path: Path) -> None:
    gelu = "torch.nn.functional.gelu(x)"
    verdict = verdict_on_activation(tmp_path, f"return 2 * x if x.mean() > 4 else {gelu}")
    assert verdict.status == "refuted", verdict.reason


def test_without_a_comparison_on_the_slow_model_nothing_is_proved(tmp_path: Path) -> None:
    body = "return [2 * x for _ in range(1) if number_of_runs <= 4][0]"
    verdict = verdict_on_activation(tmp_path, body)
    assert verdict.status == "unproven" and "was not compared on" in verdict.reason


def test_the_end_of_the_process_beside_the_slow_model_is_no_proof(tmp_path: Path) -> None:
    verdict = verdict_on_activation(tmp_path, "return 2 * x", fatal=4)
    assert verdict.status == "unproven" and "did not finish" in verdict.reason


def test_a_driver_that_fails_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    driver = tmp_path / "own_driver.py"
    driver.write_text("def driver(module):\n    raise RuntimeError('no model')\n")
    changed = MODEL.replace(LINE, "F.gelu(self.linear(x))").encode()
    (verdict,) = verify(path, changed, driver=f"{driver}:driver", model_classes=("Layer",))
    assert verdict.status == "unproven" and "no model" in verdict.reason
