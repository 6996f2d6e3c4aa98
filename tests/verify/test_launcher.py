"""Launchers are used again while they wait, and not when they may be about to end."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from regraft.verification import launcher
from regraft.verification.launcher import Launcher, launcher_for


def take(folder: Path, environment: dict[str, str]) -> Launcher:
    """Return the launcher that one verification would use."""
    with (
        (folder / "errors").open("wb") as errors,
        launcher_for(sys.executable, environment, errors) as used,
    ):
        return used


def test_a_waiting_launcher_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    idle: list[Launcher] = []
    monkeypatch.setattr(launcher, "_idle", idle)
    environment = dict(os.environ)
    first = take(tmp_path, environment)
    assert take(tmp_path, {**environment, "SOME_VARIABLE": "1"}) is first
    assert take(tmp_path, {**environment, "OMP_NUM_THREADS": "7"}) is not first
    monkeypatch.setattr(launcher, "_REUSE_SECONDS", 0.0)
    assert take(tmp_path, environment) is not first
    first.end()
    take(tmp_path, environment)
    assert first not in idle
    for waiting in idle:
        waiting.end()
