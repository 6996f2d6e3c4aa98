"""Test parts of models that do not run as a whole: they are compared on recorded inputs, or on
inputs of their own."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from regraft.verification import verify

pytest.importorskip("torch")
pytest.importorskip("transformers")

SOURCE = """
import torch
from torch import nn


class TinyConfig:
    def __init__(self, hidden_size=64, gated=False):
        self.hidden_size, self.gated = hidden_size, gated

    def to_dict(self):
        return dict(vars(self))

    @classmethod
    def from_dict(cls, values):
        return cls(**{name: values[name] for name in ("hidden_size", "gated")})


class Mixer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.linear = nn.Linear(config.hidden_size, config.hidden_size)
        self.gated = config.gated

    def forward(self, states, table):
        scores = self.linear(states) + table["shift"]
        if self.gated:
            scores = scores * torch.sigmoid(scores)
        return torch.softmax(scores, -1)


class Encoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.words = nn.Embedding(99, config.hidden_size)
        self.mixer = Mixer(config)

    def forward(self, input_ids):
        return self.mixer(self.words(input_ids), {"shift": torch.ones(())})


class Head(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.out = nn.Linear(config.hidden_size, 3)

    def forward(self, states):
        return torch.relu(self.out(states))


class Whole(nn.Module):
    config_class = TinyConfig

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.head = Head(config)

    def forward(self, input_ids):
        states = self.encoder(input_ids)
        STOP
        return self.head(states)
"""
NEVER = SOURCE.replace("STOP", 'raise OSError("no such camera")')
EVALUATION = SOURCE.replace("STOP", 'assert not self.training, "evaluation only"')


def judged(source: str, old: str, new: str, tmp_path: Path) -> Any:
    """Return the verdict on an edited text."""
    path = tmp_path / "model.py"
    path.write_text(source)
    assert source.count(old) == 1
    (verdict,) = verify(path, source.replace(old, new).encode(), time_limit=100)
    return verdict


def reproduced(verdict: Any) -> Any:
    """Run the reproducer of a verdict."""
    script = [sys.executable, str(verdict.evidence["reproducer"])]
    return subprocess.run(script, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("source", [NEVER, EVALUATION], ids=["never", "in evaluation only"])
def test_a_part_that_ran_is_compared_on_what_it_was_given(
    source: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    verdict = judged(
        source,
        'self.linear(states) + table["shift"]',
        'table["shift"] + self.linear(states)',
        tmp_path,
    )
    assert (verdict.status, verdict.reason) == ("proved", "")
    assert "parts" in verdict.evidence["drivers"]
    assert {"eval", "train"} <= set(verdict.evidence["modes"])
    assert len(verdict.evidence["seeds"]) == 2


@pytest.mark.slow
def test_a_wrong_part_is_refuted_and_reproduced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    verdict = judged(NEVER, 'self.linear(states) + table["shift"]', "self.linear(states)", tmp_path)
    assert verdict.status == "refuted"
    run = reproduced(verdict)
    assert run.returncode == 1, run.stdout + run.stderr


@pytest.mark.slow
def test_a_branch_of_a_part_is_reached_through_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    old, new = "scores * torch.sigmoid(scores)", "torch.sigmoid(scores) * scores"
    verdict = judged(NEVER, old, new, tmp_path)
    assert (verdict.status, verdict.reason) == ("proved", "")


@pytest.mark.slow
def test_a_part_that_is_never_called_gets_inputs_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    verdict = judged(
        NEVER, "torch.relu(self.out(states))", "nn.functional.relu(self.out(states))", tmp_path
    )
    assert "lines executed" in verdict.evidence["levels"]
    assert verdict.status == "unproven"  # nothing shows how a whole model uses it
    assert "Whole, which builds it, never ran" in verdict.reason
    wrong = judged(NEVER, "torch.relu(self.out(states))", "self.out(states).abs()", tmp_path)
    assert wrong.status == "refuted"


@pytest.mark.slow
def test_a_method_of_a_part_is_refuted_and_reproduced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    method = (
        "\n    def ranked(self, states):\n        return"
        " torch.relu(self.out(states)).sum(-1)\n\n\nclass Whole("
    )
    source = NEVER.replace("\n\nclass Whole(", method)
    verdict = judged(source, ".sum(-1)", ".mean(-1)", tmp_path)
    assert verdict.status == "refuted"
    assert "ranked of " in verdict.reason
    run = reproduced(verdict)
    assert (run.returncode, run.stderr) == (1, "")
    assert "differs" in run.stdout


REGISTERED = """
import torch
from torch import nn

import registry


class TinyConfig:
    def __init__(self, hidden_size=64):
        self.hidden_size = hidden_size

    def to_dict(self):
        return dict(vars(self))

    @classmethod
    def from_dict(cls, values):
        return cls(values["hidden_size"])


class Inner(nn.Module):
    config_class = TinyConfig

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, states, table):
        return torch.softmax(self.linear(states) + table["shift"], -1)


registry.CLASSES.setdefault("Inner", Inner)


class Outer(nn.Module):
    config_class = TinyConfig

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.words = nn.Embedding(99, config.hidden_size)
        self.inner = registry.CLASSES["Inner"](config)

    def forward(self, input_ids):
        return self.inner(self.words(input_ids), {"shift": torch.ones(())})
"""


@pytest.mark.slow
def test_a_model_from_a_registry_is_called_as_another_model_calls_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "registry.py").write_text("CLASSES = {}\n")
    old = 'self.linear(states) + table["shift"]'
    verdict = judged(REGISTERED, old, 'table["shift"] + self.linear(states)', tmp_path)
    assert (verdict.status, verdict.reason) == ("proved", "")
    # by itself, as a model or as a part of the other
    assert "Inner" in verdict.evidence["models"] or "alone" in verdict.evidence["drivers"], verdict
    assert judged(REGISTERED, old, "self.linear(states).abs()", tmp_path).status == "refuted"
