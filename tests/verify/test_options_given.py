"""Test calls that leave out optional inputs or pass them, and options that run together only."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from verdicts import verdict_on  # noqa: E402

from regraft.verification import verify  # noqa: E402
from regraft.verification.child.call_arguments import Call  # noqa: E402
from regraft.verification.child.call_outcomes import Target  # noqa: E402
from regraft.verification.child.checks.optional_values import (  # noqa: E402
    calls_without_options,
    optional_value_calls,
)
from regraft.verification.child.widened_calls import _calls_for_gaps  # noqa: E402


class Biased(nn.Module):
    """Add optional inputs; without a scale it refuses its input."""

    def forward(self, x: Any, bias: Any = None, unused: Any = None, scale: Any = None) -> Any:
        if scale is None:
            raise ValueError("no scale")
        return (x if bias is None else x + bias) * scale


def call() -> Call:
    """Return a call that passes all of the optional inputs."""
    return Call((torch.ones(2, 3), torch.ones(3)), {"unused": torch.ones(1), "scale": 2.0})


def test_an_input_is_left_out_where_it_changes_the_result() -> None:
    (without_bias,) = calls_without_options(call(), Target(Biased()))
    assert without_bias.label == "bias = None" and without_bias.args[1] is None


def test_each_subject_closes_gaps_once() -> None:
    sides = SimpleNamespace(definition="Biased", original=Target(Biased()))
    gaps = ["a condition never was false"]
    session = SimpleNamespace(condition_gaps=lambda _: gaps, widened=set[tuple[str, str]]())

    def labels(subject: str) -> list[str]:
        """Return the labels of the calls that a subject of this name gets."""
        setting = SimpleNamespace(subject=SimpleNamespace(name=subject), mode="eval")
        calls = _calls_for_gaps(call(), setting, sides, session)  # type: ignore[arg-type]
        return [candidate.label for candidate in calls]

    assert "bias = None" in labels("a") and not labels("a")
    assert "bias = None" in labels("b")
    gaps.clear()
    assert not labels("c")


class Rotated(nn.Module):
    """Multiply the heads of all positions but the first by the parts of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = 2

    def forward(self, x: Any, rope: Any = None) -> Any:
        heads = x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        if rope is None:
            return heads
        if rope.dim() != 2:
            raise ValueError("no table")
        sine, cosine = rope.chunk(2, dim=-1)
        return heads[:, :, 1:] * sine + heads[:, :, 1:] * cosine


def test_a_table_of_positions_fits_the_heads_without_a_class_token() -> None:
    rows = Call((torch.ones(2, 6, 8),), {})
    labels = {found.label for found in optional_value_calls(rows, Target(Rotated()))}
    assert "rope given, shape [5, 8]" in labels


BLOCK = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, channels: int = 8, folds: int = 0, plain: bool = False):
        super().__init__()
        self.fold = nn.Conv2d(channels, channels, 2, stride=2) if folds == 1 else None
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.is_plain = plain

    def forward(self, x):
        shortcut = x
        if self.fold is not None:
            x = torch.relu(self.fold(x))
        x = self.conv(x)
        return x if self.is_plain else x + shortcut
"""


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_an_option_that_runs_with_another_flag_only_is_tried_with_it(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, BLOCK, "torch.relu(self.fold(x))", "self.fold(x).relu()")
    assert verdict.status == "proved", verdict.reason


JOINED = """\
import torch
from torch import nn


class Join(nn.Module):
    def __init__(self, channels: int = 8, more: int = 0, rate: float = 0.0):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.mix = nn.Conv2d(channels + more, channels, 1)

    def forward(self, x, beside=None):
        y = self.conv(x)
        if beside is not None:
            y = torch.cat([y, beside], dim=1)
        return x + torch.relu(self.mix(y))


class Layer(nn.Module):
    def __init__(self, inputs: int, width: int):
        super().__init__()
        self.gate = nn.Linear(inputs, width)

    def forward(self, x, time=None):
        if time is not None:
            x = torch.cat([x, time.expand_as(x)], dim=-1)
        return torch.relu(self.gate(x))


class Merge(nn.Module):
    def __init__(self, width: int = 16, second: int | None = None, between: int = 2048):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(second, between) if second else None
        self.back = nn.Linear(width, width)

    def forward(self, x, states):
        states, more = states if isinstance(states, tuple) else (states, None)
        if self.second is not None and more is None:
            raise ValueError("two states are needed")
        if more is not None and self.second is not None:
            x = x + self.back(torch.relu(self.second(more)))
        return x + self.first(states)


class Around(nn.Module):
    def __init__(self, width: int = 16, is_timed: bool = False):
        super().__init__()
        self.is_timed = is_timed
        self.layer = Layer(2 * width if is_timed else width, width)

    def forward(self, x):
        return self.layer(x, time=x.mean(1, keepdim=True)) if self.is_timed else self.layer(x)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "layer",
    ["self.mix(y)", "self.gate(x)", "self.second(more)"],
    ids=["with an option", "by a caller with an option", "as a pair with an option"],
)
def test_an_argument_that_runs_with_an_option_only_is_given(tmp_path: Path, layer: str) -> None:
    path = tmp_path / "joined.py"
    path.write_text(JOINED)
    changed = JOINED.replace(f"torch.relu({layer})", f"{layer}.relu()")
    (verdict,) = verify(path, changed.encode(), by_rules=True)
    assert verdict.status == "proved", verdict.reason
