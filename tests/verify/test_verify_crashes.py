"""A model of the original that ends the process takes nothing away from the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from regraft.verify import Verdict, verify

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
    path = folder / "model.py"
    path.write_text(SOURCE)
    (found,) = verify(path, SOURCE.replace(OLD, new).encode(), time_limit=100)
    return found


def test_the_next_process_leaves_it_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = verdict("self.dense(hidden_states) + hidden_states", tmp_path)
    assert (found.status, found.reason) == ("proved", "")


def test_a_reproducer_makes_the_configuration_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = verdict("hidden_states - self.dense(hidden_states)", tmp_path)
    assert found.status == "refuted"
    done = subprocess.run(
        [sys.executable, str(found.evidence["reproducer"])], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "differ" in done.stdout
