"""Test the measurement of whole models: what is compared with what, what is kept, and what is told
of a model that cannot be measured."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from regraft.source.object_reference import load_source  # noqa: E402

GELU = """
import math

import torch


class TanhGELU(torch.nn.Module):
    def forward(self, x):
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
        return 0.5 * x * (1.0 + torch.tanh(inner))
"""
FOLDER = Path(__file__).parent.parent / "benchmarks" / "worth"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the command's module, with two small models as its subjects."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    module: Any = load_source(FOLDER / "run.py", "worth_run")
    subject = module.SUBJECTS["nanoGPT, 1 x 512"]
    path = tmp_path_factory.mktemp("model") / "model.py"
    path.write_text(GELU)
    model: Any = load_source(path, "worth_test_model")

    def gelu(_: str, __: Path) -> Any:
        return model.TanhGELU(), {"x": torch.randn(64, 512)}

    def plain(_: str, __: Path) -> Any:
        return nn.Linear(4, 4), {"input": torch.randn(2, 4)}

    small = {
        name: dataclasses.replace(subject, build=build, repository="", modes=("inference",))
        for name, build in (("gelu", gelu), ("plain", plain))
    }
    monkeypatch.setattr(module, "SUBJECTS", {**small, "nanoGPT": subject})
    eager = functools.partial(torch.compile, backend="eager")
    monkeypatch.setattr(torch, "compile", eager)
    return module


def options(**changed: Any) -> argparse.Namespace:
    """Return the options of the command."""
    default = {"again": False, "known": False, "device": "cpu", "rounds": 6}
    return argparse.Namespace(**{**default, "repositories": None, "no_compile": False, **changed})


def test_a_model_that_pays_is_compared_alone_and_compiled(command: Any) -> None:
    entry = command.measure("gelu", "inference", options())
    assert entry.rules == ("torch/gelu",)
    assert [(row.name, row.against) for row in entry.rows] == [
        ("Regraft", "eager"),
        ("eager + compile", "eager"),
        ("Regraft + compile", "eager + compile"),
    ]
    assert [row.compile is not None for row in entry.rows] == [False, True, True]
    assert all(row.seconds > 0 and row.speed[0] <= row.speed[1] for row in entry.rows)
    assert entry.rows[0].memory < 0.9


def test_compiled_versions_can_be_left_out(command: Any) -> None:
    entry = command.measure("gelu", "inference", options(no_compile=True))
    assert [(row.name, row.against) for row in entry.rows] == [("Regraft", "eager")]


def test_a_model_that_stays_as_it_is_says_so(command: Any) -> None:
    entry = command.measure("plain", "inference", options())
    assert [row.name for row in entry.rows] == ["eager + compile"]
    assert "Regraft: unchanged" in next(command.lines_of(entry))


def test_slower_choices_are_marked(command: Any) -> None:
    row = command.Row("Regraft", "eager", (0.9, 0.95, 0.97), 1.0, 1.0)
    entry = command.Entry("plain", "inference", ("a/b",), (row,))
    assert row.is_too_slow and "SLOWER" in list(command.lines_of(entry))[1]
    assert not dataclasses.replace(row, name="sdpa").is_too_slow
    assert not dataclasses.replace(row, speed=(0.9, 0.95, 0.99)).is_too_slow


def test_measurements_are_kept_and_read(command: Any, tmp_path: Path) -> None:
    row = command.Row("eager + compile", "eager", (1.0, 1.1, 1.2), 0.5, 0.75, 12.0)
    entry = command.Entry("plain", "inference", (), (row,))
    command.write(tmp_path / "plain-inference.json", entry)
    assert command.entry_of("plain", "inference", options(), tmp_path) == entry
    missing = command.entry_of("gelu", "inference", options(known=True), tmp_path)
    assert missing.error == "not measured yet"


def test_a_model_that_fails_is_told_with_its_error(command: Any, tmp_path: Path) -> None:
    # the process that is started knows the real models, and none of this name
    entry = command.entry_of("plain", "inference", options(), tmp_path)
    assert entry.error == "FAILED: KeyError: 'plain'" and not list(tmp_path.iterdir())
    assert "FAILED: KeyError" in next(command.lines_of(entry))


def test_what_a_model_lacks_is_named(command: Any, tmp_path: Path) -> None:
    assert command.lacking("plain", None) == ""
    reason = command.lacking("nanoGPT", tmp_path)
    assert "https://github.com/karpathy/nanoGPT" in reason and "karpathy+nanoGPT" in reason
    (tmp_path / "karpathy+nanoGPT").mkdir()
    assert command.lacking("nanoGPT", tmp_path) == ""
