"""Test calls that leave out optional inputs which a recorded call passes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from regraft.verification.child.call_arguments import Call  # noqa: E402
from regraft.verification.child.call_outcomes import Target  # noqa: E402
from regraft.verification.child.checks.optional_values import calls_without_options  # noqa: E402
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
    session = SimpleNamespace(
        conditions=(SimpleNamespace(gaps=lambda _: gaps),), widened=set[tuple[str, str]]()
    )

    def labels(subject: str) -> list[str]:
        """Return the labels of the calls that a subject of this name gets."""
        setting = SimpleNamespace(subject=SimpleNamespace(name=subject), mode="eval")
        calls = _calls_for_gaps(call(), setting, sides, session)  # type: ignore[arg-type]
        return [candidate.label for candidate in calls]

    assert "bias = None" in labels("a") and not labels("a")
    assert "bias = None" in labels("b")
    gaps.clear()
    assert not labels("c")
