"""Test what a benchmark shows while it runs, and what remains of it after Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from regraft.benchmarking import (  # noqa: E402
    Goal,
    Options,
    Result,
    Row,
    as_json,
    as_text,
    bench,
    calls_of,
)
from regraft.benchmarking.median_intervals import Interval  # noqa: E402
from regraft.benchmarking.paired_measurement import Pair  # noqa: E402
from regraft.benchmarking.rule_selection import Choice, Worth  # noqa: E402
from regraft.report.terminal import Progress  # noqa: E402
from regraft.rules import load_rules  # noqa: E402
from regraft.scanning import compile_rules  # noqa: E402

MODEL = """\
import time

import torch
from torch import nn


class Act(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(16, 16)

    def forward(self, x):
        time.sleep(0.2)
        return torch.softmax(self.dense(x), dim=-1)


class Gelu(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.act, self.gelu = Act(), Gelu()

    def forward(self, x):
        return self.gelu(self.act(x))


def build():
    return Model(), torch.randn(4, 16)
"""


class Interrupting:
    """An observer that behaves as if Ctrl-C came at an activity, or after some pairs of it."""

    def __init__(self, activity: str, pairs: int = 0) -> None:
        self.expected, self.pairs = activity, pairs
        self.activity = ""
        self.rows: list[Row] = []

    def begin(self, activity: str) -> None:
        self.activity = activity
        if activity.startswith(self.expected) and not self.pairs:
            raise KeyboardInterrupt

    def count(self, done: int, total: int) -> None:
        if self.pairs and self.activity.startswith(self.expected) and done >= self.pairs:
            raise KeyboardInterrupt

    def start_table(self, result: Result, labels: Any) -> None: ...

    def add_row(self, row: Row) -> None:
        self.rows.append(row)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a model of a file."""
    (tmp_path / "sleepy.py").write_text(MODEL.replace("time.sleep(0.2)", "pass"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "sleepy", raising=False)
    import sleepy  # type: ignore[import-not-found]

    monkeypatch.setitem(sys.modules, "sleepy", sleepy)
    return sleepy.Model()


OPTIONS = Options(rounds=12, verify=False, goal=Goal("fastest"))


def measured(model: nn.Module, observer: Interrupting) -> Result:
    """Return the result of a benchmark of two rules."""
    rules, problems = compile_rules(load_rules(["adopter/softmax", "torch/gelu"], ())[0])
    assert not problems
    return bench(model, calls_of(torch.randn(4, 16)), rules, OPTIONS, observer)


@pytest.mark.parametrize(
    ("activity", "rows"), [("rewriting", 0), ("comparing results", 0), ("choosing", 3)]
)
def test_an_interrupted_benchmark_keeps_its_rows_and_chooses_nothing(
    model: Any, activity: str, rows: int
) -> None:
    observer = Interrupting(activity)
    result = measured(model, observer)
    assert result.interrupted.startswith(activity) and result.chosen is None
    assert len(result.rows) == rows and result.rows == observer.rows
    text = list(as_text(result, OPTIONS, lambda text, **_: text))
    assert f"partial: interrupted while {result.interrupted}" in text
    assert "nothing is chosen, and no lock file is written" in text
    assert as_json(result, OPTIONS, "build")["interrupted"] == result.interrupted


def test_rows_that_have_an_interval_already_are_shown_as_unfinished(model: Any) -> None:
    result = measured(model, Interrupting("measuring inference", pairs=18))
    assert result.interrupted == "measuring inference: 3 variants"
    assert 2 <= len(result.rows) <= 3
    unfinished = [row for row in result.rows if not row.is_complete]
    text = "\n".join(as_text(result, OPTIONS, lambda text, **_: text))
    assert text.count(", so far") == len(unfinished)


@pytest.mark.slow
def test_the_choice_is_printed_without_what_it_is_compared_with(model: Any) -> None:
    speed = Interval(1.1, 1.2, 1.3)
    worth = Worth(Pair(Interval(1.0, 1.1, 1.2), speed, speed), 2**20, 2**21)
    result = measured(model, Interrupting("never"))
    result.chosen = Choice(frozenset({"torch/gelu"}), {"torch/gelu": worth}, worth)
    lines = list(as_text(result, OPTIONS, lambda text, **_: text))
    shown = [" ".join(line.split()) for line in lines]
    figures = "1.2 s 1.20 (1.10-1.30) 1.0 MiB faster"
    assert f"chosen (fastest): {figures}" in shown
    assert f"torch/gelu, beside the others: {figures}" in shown


@pytest.mark.slow
def test_ctrl_c_prints_the_table_so_far_and_writes_no_lock(tmp_path: Path) -> None:
    (tmp_path / "sleepy.py").write_text(MODEL)
    command = [sys.executable, "-m", "regraft", "bench", "sleepy:build", "--select"]
    command += ["--no-verify", "--threads", "2", "--rounds", "2000"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # commands in the background of a shell inherit that SIGINT is ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    assert process.stdout is not None
    first_line = process.stdout.readline()
    assert first_line.startswith("Model on cpu")
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "partial: interrupted while" in output and "no lock file is written" in output
    assert "Traceback" not in errors and os.listdir(tmp_path).count("regraft.lock.toml") == 0


def test_progress_says_what_how_far_and_how_long() -> None:
    progress = Progress()
    progress.begin("measuring training: 8 variants")
    assert re.fullmatch(r"measuring training: 8 variants, \d+ s", progress.sentence())
    progress.count(30, 120)
    assert re.fullmatch(
        r"measuring training: 8 variants, 30 of at most 120 pairs, \d+ s, this takes \d+ s more at"
        r" most",
        progress.sentence(),
    )


def test_progress_is_silent_between_its_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        progress.begin("verifying")
        progress.print_lines(["a row"])
    assert capsys.readouterr() == ("a row\n", "")
