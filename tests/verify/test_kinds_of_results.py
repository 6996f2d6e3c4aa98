"""Test that results are compared whatever their kind: iterators, arrays of NumPy, modules, objects
with slots, and plain values that hold others."""

from __future__ import annotations

from pathlib import Path

import pytest
from verdicts import verdict_on

pytest.importorskip("torch")

pytestmark = [pytest.mark.usefixtures("here"), pytest.mark.slow]

WINDOWS = """\
def windows(x, size: int = 4):
    for start in range(0, x.shape[1], size):
        yield x[:, start : start + size]
"""
PLAN = """\
def plan(x, stride: int = 2):
    return range(0, x.shape[1], stride), x[:, ::stride]
"""
HEAD = """\
from torch import nn


def make_head(width: int, classes: int, hidden: int = 16):
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, classes))
"""
ARRAY = """\
def arrays(x):
    doubled = x + x
    return doubled, doubled.detach().float().numpy()
"""
SLOTS = """\
import torch
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Bounds:
    low: Any
    high: Any


def bounds(x):
    low, high = x.amin(-1), x.amax(-1)
    return Bounds(low, high)
"""
WRONG = {
    "a generator": (WINDOWS, "yield x[:, start : start + size]", "yield x[:, start:]"),
    "a range": (PLAN, "range(0, x.shape[1], stride)", "range(x.shape[1])"),
    "a module": (HEAD, "nn.GELU()", "nn.GELU('tanh')"),
    "an array": (ARRAY, "doubled.detach().float()", "(doubled + x).detach().float()"),
    "slots": (SLOTS, "Bounds(low, high)", "Bounds(low, low)"),
}
RIGHT = {
    "a generator": (
        WINDOWS,
        "for start in range(0, x.shape[1], size):\n        yield x[:, start : start + size]",
        "yield from (x[:, start : start + size] for start in range(0, x.shape[1], size))",
    ),
    "a module": (
        HEAD,
        "return nn.Sequential(nn.Linear(width, hidden),",
        "first = nn.Linear(width, hidden)\n    return nn.Sequential(first,",
    ),
    "slots": (SLOTS, "low, high = x.amin(-1), x.amax(-1)", "low, high = torch.aminmax(x, dim=-1)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_another_content_is_refuted(name: str, tmp_path: Path) -> None:
    text, before, after = WRONG[name]
    verdict = verdict_on(tmp_path, text, before, after)
    assert verdict.status == "refuted", verdict.reason


@pytest.mark.parametrize("name", RIGHT)
def test_equal_content_is_proved(name: str, tmp_path: Path) -> None:
    text, before, after = RIGHT[name]
    verdict = verdict_on(tmp_path, text, before, after)
    assert verdict.status == "proved", verdict.reason
