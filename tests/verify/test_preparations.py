"""Test models of which a method makes something ready, such as caches, before `forward` runs."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from regraft.verification import verify
from regraft.verification.child.drivers.preparations import preparations, prepare

SOURCE = """
import torch
from torch import nn


class Cache(nn.Module):
    def __init__(self, max_batch_size, max_seq_length, width):
        super().__init__()
        self.register_buffer("states", torch.zeros(max_batch_size, max_seq_length, width))

    def update(self, input_pos, states):
        assert input_pos.shape[0] == states.shape[1]
        self.states[:, input_pos] = states
        return self.states


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.key, self.cache = nn.Linear(dim, dim), None

    def forward(self, x, input_pos=None):
        states = self.key(x)
        if self.cache is not None:
            states = self.cache.update(input_pos, states)
        return torch.softmax(x @ states.transpose(1, 2), -1) @ states


class Decoder(nn.Module):
    def __init__(self, vocab_size=50, dim=16, n_layers=2):
        super().__init__()
        self.dim, self.embeddings = dim, nn.Embedding(vocab_size, dim)
        self.layers = nn.ModuleList(Layer(dim) for _ in range(n_layers))
        self.head, self.table = nn.Linear(dim, vocab_size), None

    def setup_caches(self, max_batch_size, max_seq_length):
        for layer in self.layers:
            layer.cache = Cache(max_batch_size, max_seq_length, self.dim)
        self.table = torch.sin(torch.arange(max_seq_length * self.dim).view(-1, self.dim).float())

    def forward(self, idx, input_pos=None):
        assert self.table is not None, "caches must be made first"
        x = self.embeddings(idx) + self.table[input_pos]
        for layer in self.layers:
            x = x + layer(x, input_pos)
        return self.head(x)
"""
SOFTMAX = "torch.softmax(x @ states.transpose(1, 2), -1) @ states"
EQUAL = (SOFTMAX, SOFTMAX.replace("transpose(1, 2)", "mT"))
# other results only where there is a cache, which is longer than the input
ONLY_WITH_CACHE = (
    SOFTMAX,
    SOFTMAX.replace("@ states.t", "@ states[:, : x.shape[1]].t") + "[:, : x.shape[1]]",
)


def verdicts_of(change: tuple[str, str], folder: Path) -> dict[str, Any]:
    """Return the verdicts by definition on the decoder with one text replaced by another."""
    path = folder / "model.py"
    path.write_text(SOURCE)
    verdicts = verify(path, SOURCE.replace(*change).encode(), time_limit=100)
    return {verdict.definition: verdict for verdict in verdicts}


@pytest.mark.slow
def test_a_layer_runs_with_the_cache_that_its_model_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (verdict,) = verdicts_of(EQUAL, tmp_path).values()
    assert verdict.reason == ""
    models = str(verdict.evidence["models"])
    assert "after setup_caches(max_batch_size=3, max_seq_length=512)" in models


@pytest.mark.slow
def test_a_difference_that_only_a_cache_shows_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (verdict,) = verdicts_of(ONLY_WITH_CACHE, tmp_path).values()
    assert verdict.status == "refuted"
    command = [sys.executable, str(verdict.evidence["reproducer"])]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stderr


class Needy(nn.Module):
    """Has methods of many kinds beside `forward`."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: Any = None
        self.count, self.inner = 0, nn.Linear(2, 2, bias=False)
        self.register_buffer("mask", None)

    def make_mask(self, length: int, device: str) -> None:
        self.register_buffer("mask", torch.ones(length, device=device))

    def make_cache(self, bsz: int, max_len: int, fill: float = 0.0) -> None:
        self.cache = torch.full((bsz, max_len), fill)

    def load_cache(self, path: str) -> None:
        self.cache = torch.load(path)

    def count_up(self, steps: int) -> None:
        self.count += steps

    def forward(self, x: Any) -> Any:
        return self.inner(x)


def test_methods_that_assign_what_is_unset_get_sizes() -> None:
    module = sys.modules[__name__]
    assert isinstance(module, ModuleType)
    model = Needy()
    chosen = list(preparations(model, module))
    assert chosen == [
        {"make_mask": {"length": 512, "device": "cpu"}},
        {"make_cache": {"bsz": 3, "max_len": 512}},
    ]
    for preparation in chosen:
        prepare(model, preparation)
    assert model.cache.shape == (3, 512)
    assert list(preparations(model, module)) == []
