"""Test that properties of changed classes count: callers read them, calls of the model need not."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from verdicts import verdict_on

MODEL = """\
from dataclasses import dataclass

from torch import nn


@dataclass
class Config:
    hidden_size: int = 32
    num_heads: int = 4

    @property
    def head_dim(self):
        return self.hidden_size // self.num_heads


class Attention(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.scale = config.head_dim**-0.5
        self.query = nn.Linear(config.hidden_size, config.hidden_size)

    @property
    def width(self):
        return self.query.out_features

    def forward(self, x):
        scores = self.query(x) @ x.transpose(-1, -2) * self.scale
        return scores.softmax(-1) @ x
"""


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("self.hidden_size // self.num_heads", "self.hidden_size / self.num_heads", "head_dim"),
        ("self.query.out_features", "self.query.out_features + 0.0", "width"),
        ("self.query.out_features", "self.query.outfeatures", "width"),
    ],
    ids=["a configuration", "a module", "an error"],
)
def test_another_value_of_a_property_is_refuted(
    tmp_path: Path, before: str, after: str, reason: str
) -> None:
    verdict = verdict_on(tmp_path, MODEL, before, after)
    assert verdict.status == "refuted", verdict.reason
    assert reason in verdict.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "return self.hidden_size // self.num_heads",
            "size = self.hidden_size\n        return size // self.num_heads",
        ),
        ("self.query.out_features", "self.query.weight.shape[0]"),
    ],
    ids=["a configuration", "a module"],
)
def test_an_equal_value_of_a_property_is_no_difference(
    tmp_path: Path, before: str, after: str
) -> None:
    verdict = verdict_on(tmp_path, MODEL, before, after)
    assert verdict.status != "refuted", verdict.reason


LAZY = """\
from torch import nn


class Table(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.stored = None

    @property
    def size(self):
        if self.stored is None:
            self.stored = self.layer.out_features
        return self.stored

    def forward(self, x):
        return self.layer(x).softmax(-1) * self.size
"""


def test_what_reading_a_property_stores_is_taken_back(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, LAZY, "self.layer.out_features", "len(self.layer.bias)")
    assert verdict.status == "proved", verdict.reason


COMPUTED_FIELD = """\
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Settings:
    width: int = 96
    heads: int = 6

    @property
    def head_width(self):
        return self.width // self.heads


class Scores(nn.Module):
    def __init__(self, settings: Settings):
        super().__init__()
        self.settings = settings
        self.query = nn.Linear(settings.width, settings.width)

    def forward(self, x):
        q = self.query(x).unflatten(-1, (self.settings.heads, -1)).transpose(1, 2)
        return q @ q.transpose(-2, -1) * self.settings.head_width ** -0.5
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "status"),
    [
        ("self.settings.head_width ** -0.5 * (q @ q.transpose(-2, -1))", "proved"),
        ("q @ q.transpose(-2, -1) * min(self.settings.head_width, 8) ** -0.5", "refuted"),
    ],
)
def test_a_property_of_a_configuration_takes_several_values(
    tmp_path: Path, after: str, status: str
) -> None:
    before = "q @ q.transpose(-2, -1) * self.settings.head_width ** -0.5"
    verdict = verdict_on(tmp_path, COMPUTED_FIELD, before, after)
    assert verdict.status == status, verdict.reason
