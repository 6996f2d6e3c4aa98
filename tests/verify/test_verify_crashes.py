"""Test that a model that ends its process takes nothing from the others, and that the child ends
with its parent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from regraft.verification import Verdict, verify

pytest.importorskip("torch")
pytest.importorskip("transformers")

SOURCE = """
import os

from torch import nn
from transformers import PretrainedConfig, PreTrainedModel


class TinyConfig(PretrainedConfig):
    def __init__(self, hidden_size=32, vocab_size=99, **kwargs):
        super().__init__(**kwargs)
        self.hidden_size, self.vocab_size = hidden_size, vocab_size


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_states):
        return hidden_states + self.dense(hidden_states)


class CrashingModel(PreTrainedModel):
    config_class = TinyConfig

    def __init__(self, config):
        super().__init__(config)
        os.abort()

    def forward(self, input_ids):
        return input_ids


class SoundModel(PreTrainedModel):
    config_class = TinyConfig

    def __init__(self, config):
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.block = Block(config)
        self.post_init()

    def _init_weights(self, module):
        pass

    def forward(self, input_ids):
        return self.block(self.embed(input_ids))
"""


OLD = "hidden_states + self.dense(hidden_states)"


def verdict(new: str, folder: Path) -> Verdict:
    """Return the verdict on a changed line."""
    path = folder / "model.py"
    path.write_text(SOURCE)
    (outcome,) = verify(path, SOURCE.replace(OLD, new).encode(), time_limit=100)
    return outcome


@pytest.mark.slow
def test_the_next_process_leaves_it_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = verdict("self.dense(hidden_states) + hidden_states", tmp_path)
    assert (outcome.status, outcome.reason) == ("proved", "")


@pytest.mark.slow
def test_a_reproducer_makes_the_configuration_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = verdict("hidden_states - self.dense(hidden_states)", tmp_path)
    assert outcome.status == "refuted"
    run = subprocess.run(
        [sys.executable, str(outcome.evidence["reproducer"])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (1, "")
    assert "differ" in run.stdout


ENDLESS = """
import os
import pathlib
import time

from torch import nn


class Block(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.dense = nn.Linear(dim, dim)
        pathlib.Path(os.environ["WHERE"], "pid").write_text(str(os.getpid()))
        time.sleep(1000)

    def forward(self, x):
        return x + self.dense(x)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_the_child_does_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    old, new, pid = tmp_path / "old.py", tmp_path / "new.py", tmp_path / "pid"
    old.write_text(ENDLESS)
    new.write_text(ENDLESS.replace("x + self.dense(x)", "self.dense(x) + x"))
    options = ["--sandbox", "off", "--pass-env", "WHERE"]  # it writes its process id
    command = [sys.executable, "-m", "regraft", "verify", *options, str(old), str(new)]
    parent = subprocess.Popen(
        command, env={**os.environ, "WHERE": str(tmp_path)}, stdout=subprocess.DEVNULL
    )
    try:
        assert until(lambda: pid.exists() and bool(pid.read_text()), 60)
    finally:
        parent.kill()
    parent.wait()
    child = int(pid.read_text())
    assert until(lambda: gone(child), 10)


def until(true: Callable[[], bool], seconds: float) -> bool:
    """Wait until a function returns True, and return its last value."""
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.1)
    return true()


def gone(pid: int) -> bool:
    """Return whether a process has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # where no process collects orphans, a dead one stays as a zombie
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z"
