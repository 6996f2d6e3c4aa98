"""Test `regraft bench` as a user runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from command_line import regraft  # noqa: E402
from regraft.rules.lock_file import NAME, read  # noqa: E402

MODEL = """\
import math

import torch
from torch import nn


class Gelu(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Act(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.dense = nn.Linear(d, d)

    def forward(self, x):
        return torch.softmax(self.dense(x), dim=-1)


class Model(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.gelu = Gelu()
        self.act = Act(d)

    def forward(self, x):
        return self.act(self.gelu(self.gelu(self.gelu(x))))


class Plain(nn.Module):
    def forward(self, x):
        return x + 1
"""  # noqa: E501
TARGETS = """\
import torch
from model import Model, Plain


def build():
    return Model(64), torch.randn(64, 64, 64)


def twice():
    return Model(64), [{"x": torch.randn(8, 64)}, (torch.randn(4, 64),)]


def plain():
    return Plain(), torch.randn(4)


def wrong():
    return Model(64), torch.randn(4, 3)


def alone():
    return Model(64)


def empty():
    return Model(64), []


def broken():
    raise KeyError("weights")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a directory with a model and the functions that build it."""
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "targets.py").write_text(TARGETS)
    return tmp_path


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make the folder the working directory of this process, and forget its modules afterwards."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    threads = torch.get_num_threads()
    yield folder
    torch.set_num_threads(threads)
    for name in ("model", "targets"):
        sys.modules.pop(name, None)


def run(folder: Path, target: str, *options: str) -> Any:
    """Run `regraft bench` on a target in a process of its own."""
    command = [sys.executable, "-m", "regraft", "bench", target, "--rounds", "6", *options]
    environment = {**os.environ, "REGRAFT_CACHE_DIR": str(folder / "cache")}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def is_progress(text: str) -> bool:
    """Return whether a text is nothing but lines that say what a command does, and for how long."""
    return all(re.search(r"^\w.*, \d+ s(, .*)?$", line) for line in text.splitlines())


@pytest.mark.slow
def test_what_gains_is_chosen_proved_and_locked(folder: Path) -> None:
    result = run(
        folder, "targets.py:build", "--select", "--output-format", "json", "--rounds", "12"
    )
    assert result.returncode == 0, result.stderr
    assert is_progress(result.stderr)
    report = json.loads(result.stdout)
    assert report["verified"] and report["threads"] == 1 and report["level"] == 0.95
    rows = {row["name"]: row for row in report["rows"]}
    assert set(rows) == {"torch/gelu", "adopter/softmax", "all 2 rules"}
    assert all(row["differs"] == "" for row in rows.values())
    speed = rows["torch/gelu"]["pair"]["speed"]
    assert 1 < speed["low"] <= speed["median"] <= speed["high"]
    assert rows["torch/gelu"]["bytes"] < rows["torch/gelu"]["bytes_against"]
    lock = read(folder / NAME)
    chosen = [rule.id for rule in lock.rules]
    assert "torch/gelu" in chosen and report["chosen"]["rules"] == chosen
    assert all(rule.measured["speed"][0] > 1 for rule in lock.rules)
    assert (lock.target, lock.goal, lock.mode, lock.device) == (
        "targets.py:build",
        "fastest",
        "inference",
        "cpu",
    )
    check = [sys.executable, "-m", "regraft", "check", "--output-format", "json", "model.py"]
    report_of_check = json.loads(
        subprocess.run(check, cwd=folder, capture_output=True, text=True, check=False).stdout
    )
    assert {finding["rule"] for finding in report_of_check["findings"]} == set(chosen)


@pytest.mark.slow
def test_both_modes_as_a_table_and_several_calls(here: Path) -> None:
    options = ("--rounds", "6", "--mode", "both", "--packs", "torch", "--no-verify")
    result = regraft("bench", "targets:twice", *options)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert (
        lines[0].startswith("Model on cpu (")
        and "1 thread," in lines[0]
        and "medians of up to 6 pairs" in lines[0]
    )
    assert [line.split()[0] for line in lines if line] == [
        "Model",
        "inference",
        "original",
        "torch/gelu",
        "training",
        "original",
        "torch/gelu",
    ]
    assert not (here / NAME).exists()


@pytest.mark.slow
def test_against_torch_compile(folder: Path) -> None:
    result = run(
        folder,
        "targets:build",
        "--packs",
        "torch",
        "--no-verify",
        "--compile",
        "--output-format",
        "json",
    )
    assert result.returncode == 0, result.stderr
    assert [(row["name"], row["against"]) for row in json.loads(result.stdout)["rows"]] == [
        ("torch/gelu", "original"),
        ("torch.compile", "original"),
        ("torch/gelu + torch.compile", "original"),
        ("torch/gelu + torch.compile", "torch.compile"),
    ]


@pytest.mark.slow
def test_a_limit_that_nothing_keeps(here: Path) -> None:
    options = ("--packs", "torch", "--no-verify", "--select", "--memory-limit", "1kB")
    result = regraft("bench", "targets:build", "--rounds", "6", *options)
    assert result.returncode == 1 and "no subset of the rules keeps the limit" in result.stdout
    assert not (here / NAME).exists()


def test_nothing_to_rewrite(here: Path) -> None:
    result = regraft("bench", "targets:plain", "--select", "smallest", "--lock", "other.toml")
    assert result.returncode == 0 and "no rule; none is proved to gain here" in result.stdout
    assert read(here / "other.toml").rules == ()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("targets", "is not written MODULE:FUNCTION"),
        ("targets:missing", "targets has no function missing"),
        ("missing:build", "missing:build: there is no module missing"),
        ("missing.py:build", "missing.py:build: there is no file missing.py"),
        ("targets:broken", "KeyError: 'weights'"),
        ("targets:broken", "error: targets.py:"),
        ("targets:alone", "returns Model, not (model, inputs)"),
        ("targets:empty", "the list of inputs is empty"),
        ("targets:wrong", "the model does not run: RuntimeError"),
    ],
)
def test_targets_that_cannot_be_measured(here: Path, target: str, message: str) -> None:
    result = regraft("bench", target, "--no-verify", "--packs", "torch")
    assert result.returncode == 2 and message in result.stderr
    assert "Traceback" not in result.stderr and result.stdout == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--select", "slowest"], "is not one of"),
        (["--select", "--mode", "both"], "--select chooses for one mode"),
        (["--memory-limit", "1GB"], "--memory-limit goes with --select fastest"),
        (["--select", "--time-limit", "1s"], "--time-limit goes with --select smallest"),
        (["--select", "--memory-limit", "much"], "is not a number above 0"),
        (["--rounds", "5"], "an interval needs at least 6 pairs"),
        (["--packs", ","], "--packs names no rule"),
        (["--packs", "nothing"], "no rule has this name"),
        (["--threads", "0"], "is not in the range"),
    ],
)
def test_options_that_do_not_fit(here: Path, options: list[str], message: str) -> None:
    result = regraft("bench", "targets:build", *options)
    assert result.returncode == 2 and message in result.stderr and "Traceback" not in result.stderr


def test_a_lock_that_cannot_be_written(here: Path) -> None:
    result = regraft("bench", "targets:plain", "--select", "--lock", "missing/lock.toml")
    assert (
        result.returncode == 2
        and "missing/lock.toml: cannot be written: No such file" in result.stderr
    )


def rows_of(*options: str) -> set[str]:
    """Return the names of the rules that `regraft bench` measures."""
    options = ("--rounds", "6", "--no-verify", "--output-format", "json", *options)
    result = regraft("bench", "targets.py:build", *options)
    assert result.returncode == 0, result.stderr
    return {row["name"] for row in json.loads(result.stdout)["rows"]}


@pytest.mark.slow
def test_the_configuration_file_chooses_rules_below_the_options(here: Path) -> None:
    (here / "regraft.toml").write_text('select = ["torch"]\n')
    assert rows_of() == {"torch/gelu"}
    assert rows_of("--packs", "adopter") == {"adopter/softmax"}
    assert rows_of("--no-config") >= {"torch/gelu", "adopter/softmax"}
    (here / "other.toml").write_text('ignore = ["torch/gelu"]\n')
    assert rows_of("--config", "other.toml") == {"adopter/softmax"}
    assert rows_of("--config", "other.toml", "--ignore", "softmax") == {"torch/gelu"}


def test_a_rule_that_is_ignored_in_a_file_is_not_measured_there(here: Path) -> None:
    (here / "regraft.toml").write_text('[per-file-ignores]\n"model.py" = ["torch/gelu"]\n')
    assert rows_of() == {"adopter/softmax"}


def test_a_wrong_configuration_file_is_an_error_before_the_model_is_built(here: Path) -> None:
    for text, message in (
        (
            'selct = ["torch"]\n',
            "regraft.toml:1 error: unknown key `selct`; did you mean `select`?",
        ),
        ('ignore = ["tosch"]\n', "`ignore` names tosch: no rule has this name; did you mean torch"),
    ):
        (here / "regraft.toml").write_text(text)
        for command in ("bench", "profile"):
            result = regraft(command, "targets.py:broken")
            assert result.returncode == 2 and message in result.stderr, result.stderr


@pytest.mark.slow
def test_a_lock_file_that_the_configuration_file_outranks_is_said_to_be(here: Path) -> None:
    (here / "regraft.toml").write_text('select = ["torch"]\n')
    options = ("--rounds", "6", "--no-verify", "--select")
    result = regraft("bench", "targets.py:build", *options)
    assert result.returncode == 0, result.stderr
    file = here / "regraft.toml"
    assert f"note: {file} chooses rules: check reads {NAME} only with --lock" in result.stderr
    assert NAME not in regraft("check", "model.py").stderr
    assert NAME in regraft("check", "model.py", "--lock", NAME).stderr
