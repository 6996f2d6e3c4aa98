"""Test models whose inputs are arrays of NumPy, as recommenders take their logs of items."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from regraft.verification import verify
from regraft.verification.child import call_arguments
from regraft.verification.child.call_arguments import Call
from regraft.verification.child.drivers import input_guesses

SOURCE = """
import numpy as np
import torch
from torch import nn


class Recommender(nn.Module):
    def __init__(self, items=20, width=8):
        super().__init__()
        self.items, self.places = nn.Embedding(items, width), nn.Embedding(300, width)

    def features(self, log_seqs):
        x = self.items(torch.LongTensor(log_seqs))
        places = np.tile(np.arange(1, log_seqs.shape[1] + 1), [log_seqs.shape[0], 1])
        places *= (log_seqs != 0)
        return torch.softmax(x + self.places(torch.LongTensor(places % 300)), -1)

    def forward(self, users, log_seqs, other_seqs):
        return (self.features(log_seqs) * self.items(torch.LongTensor(other_seqs))).sum(dim=-1)
"""
EQUAL = (
    "torch.softmax(x + self.places(torch.LongTensor(places % 300)), -1)",
    "(x + self.places(torch.LongTensor(places % 300))).softmax(-1)",
)
ONLY_PADDING = ("log_seqs != 0", "log_seqs != 1")


def verdict_of(change: tuple[str, str], folder: Path) -> Any:
    """Return the verdict on the recommender with one text replaced by another."""
    path = folder / "model.py"
    path.write_text(SOURCE)
    (verdict,) = verify(path, SOURCE.replace(*change).encode(), time_limit=100)
    return verdict


@pytest.mark.slow
def test_a_change_beside_arrays_is_proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert verdict_of(EQUAL, tmp_path).reason == ""


@pytest.mark.slow
def test_the_numbers_in_arrays_are_varied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert verdict_of(ONLY_PADDING, tmp_path).status == "refuted"


class Looks(nn.Module):
    """Looks items of an array up, as NumPy computes their places."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(20, 8)

    def forward(self, log_seqs: Any, other_seqs: Any) -> Any:
        looked_up = self.items(torch.LongTensor(log_seqs))
        places = np.ones(log_seqs.shape, dtype=np.int64)
        places *= log_seqs != 0
        others = self.items(torch.LongTensor(other_seqs))
        return looked_up * others * torch.from_numpy(places)[..., None]


def test_all_inputs_are_arrays_of_tokens_where_one_has_to_be_an_array() -> None:
    model = Looks().eval()
    call, *_ = input_guesses.find_accepted(model).calls(model)(0)
    assert {type(value) for value in call.kwargs.values()} == {np.ndarray}
    assert {value.dtype for value in call.kwargs.values()} == {np.dtype("int64")}


def test_arrays_are_changed_as_tensors_and_stay_arrays() -> None:
    array, words = np.arange(6).reshape(2, 3), np.array(["a", "b"])
    call = Call((array, words, torch.ones(2)), {})
    doubled = call_arguments.map_tensors(call, lambda tensor: tensor * 2)
    assert doubled.args[0].tolist() == [[0, 2, 4], [6, 8, 10]]
    assert isinstance(doubled.args[0], np.ndarray)
    assert doubled.args[1] is words
    assert call_arguments.shapes(call) == [[2, 3], [2]]
    narrow = call_arguments.map_tensors(Call((np.ones(2),), {}), lambda tensor: tensor.bfloat16())
    assert narrow.args[0].dtype == np.float32


def test_a_write_into_an_array_is_seen() -> None:
    array = np.arange(3)
    live = call_arguments.build_arguments(Call((array,), {}), None, gradients=True)
    live.args[0][0] = 7
    (passed, before) = live.passed["input 0"]
    assert passed.tolist() == [7, 1, 2]
    assert before.tolist() == [0, 1, 2] == array.tolist()
    assert not live.leaves
