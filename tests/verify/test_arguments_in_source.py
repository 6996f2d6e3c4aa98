"""Test inputs that only the source of a function states: keywords, tuples of tensors, and numbers
that an argument is compared with."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from verdicts import verdict_on

pytest.importorskip("torch")

from regraft.verification.child.checks.arguments_in_source import (
    numbers_around,
    unpacked_parts,
    with_read_keywords,
)

pytestmark = pytest.mark.usefixtures("here")

HEAD = "import torch\nfrom torch import nn\n\n\n"
SCALED = (
    HEAD
    + """\
class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x, **kwargs):
        h = self.fc(x)
        scale = kwargs.get("scale")
        if scale is not None:
            h = h * scale
        if kwargs.pop("normalize", False):
            h = h / (1 + h.norm(dim=-1, keepdim=True))
        return h
"""
)
CROSS = (
    HEAD
    + """\
class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.q = nn.Linear(width, width)

    def forward(self, x, memory=None):
        q = self.q(x)
        if memory is not None:
            keys, bias = memory
            return (q @ keys.transpose(-1, -2) + bias).softmax(-1) @ keys
        return q
"""
)
COUNTED = """\
def scaled(x, count: int = 3):
    if count >= 400:
        return x * count
    return x + 1
"""


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        (SCALED, "h = h * scale", "h = h * scale * scale"),
        (SCALED, "1 + h.norm(", "1 + x.norm("),
        (CROSS, "+ bias", "- bias"),
        (COUNTED, "x * count", "x * (count + 1)"),
        (COUNTED, "count >= 400", "count > 400"),
    ],
)
def test_a_wrong_use_of_an_unstated_input_is_refuted(
    tmp_path: Path, text: str, before: str, after: str
) -> None:
    assert verdict_on(tmp_path, text, before, after).status == "refuted"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        (SCALED, "h = h * scale", "h = scale * h"),
        (CROSS, "keys, bias = memory", "keys, bias = memory[0], memory[1]"),
        (COUNTED, "count >= 400", "400 <= count"),
    ],
)
def test_a_right_use_of_an_unstated_input_is_proved(
    tmp_path: Path, text: str, before: str, after: str
) -> None:
    verdict = verdict_on(tmp_path, text, before, after)
    assert verdict.status == "proved", verdict.reason


def test_keywords_become_parameters_with_their_defaults() -> None:
    def function(x: Any, mask: Any = None, **options: Any) -> Any:
        options.get("mask")
        return x * options.pop("rate", 2) + options["shift"] + options.get("other", x)

    parameters = with_read_keywords(inspect.signature(function), function).parameters
    assert sorted(parameters) == ["mask", "options", "other", "rate", "shift", "x"]
    assert [parameters[name].default for name in ("other", "shift", "rate")] == [None, None, 2]
    plain = inspect.signature(lambda x: x)
    assert with_read_keywords(plain, function) is plain


def test_parts_are_counted_by_targets_and_indices() -> None:
    def function(a: Any, b: Any, c: Any, d: Any) -> Any:
        first, second, third = a
        (only,) = d
        return first + second + third + b[1] + c.x[1] + only

    assert [unpacked_parts(function, name) for name in "abcd"] == [3, 2, 0, 0]


def test_numbers_are_those_that_a_parameter_is_compared_with() -> None:
    def function(n: Any, rate: Any, other: Any) -> Any:
        if 3 <= n < 10**9 and rate > 0.5 and n != other:
            return -1
        return n == 4

    assert [numbers_around(function, name) for name in ("n", "rate", "other")] == [
        (3, 4, 5, 2),
        (0.4995, 0.5, 0.5005),
        (),
    ]


LONG = (
    HEAD
    + """\
class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.limit = 600

    def forward(self, x):
        h = self.fc(x)
        if h.shape[1] > self.limit:
            h = h * 2
        if x.size(0) > 40:
            h = h + 1
        return h
"""
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ("h * 2", "h * 3", "refuted"),
        ("h * 2", "h + h", "proved"),
        ("h + 1", "h + 2", "refuted"),
        ("h + 1", "1 + h", "proved"),
    ],
)
def test_sizes_lead_to_lines_behind_tests_of_sizes(
    tmp_path: Path, before: str, after: str, status: str
) -> None:
    verdict = verdict_on(tmp_path, LONG, before, after)
    assert verdict.status == status, verdict.reason
