"""Test changes that act only where numbers are negative or zero."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from verdicts import verdict_on

from regraft.verification.child.drivers.config_variations import opposite_values
from regraft.verification.child.drivers.opposite_numbers import opposite_numbers

pytestmark = pytest.mark.usefixtures("here")

LAYER = """\
import math

import torch
from torch import nn


def scaled(x, factor: float = 1.0):
    return x * factor


class Projection(nn.Module):
    def __init__(self, dim, scale=1.0, shift=1):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.scale = scale
        self.shift = shift

    def forward(self, x):
        return scaled(self.fc(x)).roll(self.shift, 1) * self.scale
"""
# A line, and a wrong and a right line in its place.
CASES = {
    "an attribute": (
        "* self.scale",
        "* math.sqrt(self.scale * self.scale)",
        "* math.copysign(math.sqrt(self.scale * self.scale), self.scale)",
    ),
    "an attribute that is zero": (
        "* self.scale",
        "* (self.scale or 1.0)",
        "* (self.scale if self.scale else 0.0)",
    ),
    "a constructor argument": (
        "roll(self.shift, 1)",
        "roll(abs(self.shift), 1)",
        "roll([self.shift], [1])",
    ),
    "a plain argument": ("x * factor", "x * abs(factor)", "factor * x"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_numbers_become_negative_and_zero(case: str, tmp_path: Path) -> None:
    before, wrong, _ = CASES[case]
    verdict = verdict_on(tmp_path, LAYER, before, wrong)
    assert verdict.status == "refuted", verdict


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_right_change_is_proved_for_negative_numbers(case: str, tmp_path: Path) -> None:
    before, _, right = CASES[case]
    verdict = verdict_on(tmp_path, LAYER, before, right)
    assert verdict.status == "proved", verdict


KERNEL = """\
import torch
from torch import nn


class Kernel(nn.Module):
    def __init__(self, sigma=1.0):
        super().__init__()
        self.sigma = sigma

    def forward(self, x):
        d = ((x[:, None, :] - x[None, :, :]) ** 2).sum(-1)
        return torch.exp(-d / self.sigma)
"""


@pytest.mark.slow
def test_attributes_vary_where_the_numbers_of_the_call_saturate(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, KERNEL, "-d / self.sigma", "-d")
    assert verdict.status == "refuted", verdict
    verdict = verdict_on(tmp_path, KERNEL, "-d / self.sigma", "d / -self.sigma")
    assert verdict.status == "proved", verdict


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("scale", 0.5, (-0.5, 0.0)),
        ("scale", 0.0, (-0.2,)),
        ("eps", 1e-6, ()),
        ("drop_rate", 0.1, ()),
        ("shift", 2, (-2, 0)),
        ("shift", 0, (-1,)),
        ("shift", 9, ()),
        ("hidden_size", 8, ()),
        ("dim", 8, ()),
        ("dim", 1, (-1, 0)),
        ("num_heads", 1, ()),
        ("num_layers", 2, (0,)),
        ("flag", True, ()),
        ("name", "gelu", ()),
    ],
)
def test_opposite_numbers(name: str, value: Any, expected: tuple[Any, ...]) -> None:
    assert opposite_numbers(name, value) == expected


def test_fields_of_nested_configurations_become_negative() -> None:
    config = {"scale": 0.5, "text_config": {"scale": 2.0, "shift": 3}}
    assert list(opposite_values(config, frozenset({"scale"}))) == [
        {"scale": -0.5},
        {"scale": 0.0},
        {"text_config": {"scale": -2.0, "shift": 3}},
        {"text_config": {"scale": 0.0, "shift": 3}},
    ]
