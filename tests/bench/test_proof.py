"""Test on which subjects a benchmark verifies rules: the user's model where another process can run
it in time, else small models, and that the result says so."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from regraft.benchmarking import Options, as_text, bench, calls_of  # noqa: E402
from regraft.benchmarking.proof_subjects import LARGEST_STEP, examination_of  # noqa: E402
from regraft.benchmarking.result_comparison import Results  # noqa: E402
from regraft.rules import load_rules  # noqa: E402
from regraft.scanning import compile_rules  # noqa: E402

MODEL = """\
import torch
from torch import nn


class Table:
    def __init__(self, rows):
        self.rows = [row for row in rows if row.kind == "wide"]


class Model(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.dense = nn.Linear(table.rows[0].width, 8)

    def forward(self, x):
        return torch.softmax(self.dense(x).float(), dim=-1).to(x.dtype)
"""


class Row:
    """A row of the table that the model is built from."""

    kind, width = "wide", 16


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield a model that only its user can build."""
    (tmp_path / "only_mine.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("REGRAFT_CACHE_DIR", str(tmp_path / "cache"))
    module = importlib.import_module("only_mine")
    yield module.Model(module.Table([Row()]))
    sys.modules.pop("only_mine", None)


def measured(model: Any) -> Any:
    """Return the result of a benchmark of adopter/softmax."""
    rules, problems = compile_rules(load_rules(["adopter/softmax"], ())[0])
    assert not problems
    return bench(model, calls_of(torch.randn(32, 16)), rules, Options(rounds=6))


@pytest.mark.slow
def test_a_model_that_only_its_user_can_build_is_proved(model: Any) -> None:
    result = measured(model)
    assert result.notes == ("proved on your model and inputs, and on inputs made of them",)
    assert [row.name for row in result.rows] == ["adopter/softmax"] and not result.left
    text = list(as_text(result, Options(rounds=6), lambda text, **_: text))
    assert text[1] == result.notes[0]


@pytest.mark.slow
def test_a_model_that_cannot_be_pickled_is_not_used(model: Any) -> None:
    model.callback = lambda x: x
    result = measured(model)
    (note,) = result.notes
    assert "on small models that Regraft builds of your classes" in note
    assert "your model cannot be pickled for the process that verifies" in note
    assert "on your model and inputs both versions are compared in this process" in note
    assert any("Model" in place for place in result.left)  # it cannot be built otherwise


def test_a_step_that_takes_long_is_not_run_in_a_proof(model: Any) -> None:
    calls = calls_of(torch.randn(32, 16))
    assert examination_of(model, calls, LARGEST_STEP).calls == ((calls[0][0][0],),)
    slow = examination_of(model, calls, 0.84)
    assert slow.calls is None and "a step of yours takes 0.84 s" in slow.sentence


def test_a_model_of_a_module_that_only_this_process_has_is_not_used(model: Any) -> None:
    type(model).__module__ = "only_mine__driver"
    examination = examination_of(model, calls_of(torch.randn(32, 16)), 0.0)
    assert examination.calls is None
    assert "cannot import the module only_mine__driver" in examination.sentence


class Scaled(nn.Module):
    """A model whose gradients depend on more than its results."""

    def __init__(self, detached: bool) -> None:
        super().__init__()
        self.detached = detached
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Any) -> Any:
        weight = self.weight * 2
        return x * (weight + (weight.detach() if self.detached else weight))


def test_gradients_on_the_inputs_are_compared_for_training() -> None:
    calls = calls_of(torch.randn(4, 3))
    original, other = Scaled(False), Scaled(True)
    assert Results(original, calls, gradients=True).difference(original) == ""
    assert Results(original, calls, gradients=False).difference(other) == ""
    assert "gradient" in Results(original, calls, gradients=True).difference(other)
