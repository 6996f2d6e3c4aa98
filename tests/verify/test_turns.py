"""Test that a subject that takes long waits for subjects of changes that were not compared."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from regraft.verification.child import answer_request


def steps_run(monkeypatch: pytest.MonkeyPatch, needed: dict[str, str]) -> list[str]:
    """Return the steps of the examinations of the subjects "a", "b" and "c", of three steps each,
    in the order in which they ran; a change is compared after its step in `needed`."""
    order: list[str] = []

    def steps(subject: Any, session: Any) -> Iterator[None]:
        for number in range(3):
            order.append(f"{subject}{number}")
            yield

    session = SimpleNamespace(
        compares_once=False,
        is_compared=lambda change: needed[change] in order,
        uncovered_changes=lambda: tuple(needed),
        is_finished=lambda: all(step in order for step in needed.values()),
    )
    monkeypatch.setattr(answer_request, "_examination_steps", steps)
    answer_request._examine_subjects(iter("abc"), session)  # type: ignore[arg-type]
    return order


def test_a_long_subject_waits_until_every_change_was_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answer_request, "TURN_SECONDS", -1.0)
    order = steps_run(monkeypatch, {"First": "a0", "Second": "b1"})
    assert order == ["a0", "b0", "c0", "a1", "a2", "b1", "b2", "c1", "c2"]


def test_a_short_subject_is_examined_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert steps_run(monkeypatch, {"First": "a0", "Second": "b1"}) == [
        *("a0", "a1", "a2"),
        *("b0", "b1", "b2"),
    ]
