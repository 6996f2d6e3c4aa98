"""Test that what a call returns goes into the next: keys and values, a recurrent state."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from verdicts import verdict_on

CACHED = """\
import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def split(self, x):
        return x.view(*x.shape[:-1], self.heads, self.size).permute(0, 2, 1, 3)

    def forward(self, hidden_states, attention_mask=None, past_key_value=None):
        key = self.split(self.key(hidden_states))
        value = self.split(self.value(hidden_states))
        if past_key_value is not None:
            key = torch.cat([past_key_value[0], key], dim=2)
            value = torch.cat([past_key_value[1], value], dim=2)
        query = self.split(self.query(hidden_states))
        scores = query @ key.transpose(-1, -2) / math.sqrt(self.size)
        if attention_mask is not None:
            scores = scores + attention_mask
        context = scores.softmax(-1) @ value
        context = context.permute(0, 2, 1, 3).flatten(2)
        return context, (key, value)


class Layer(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.attention = Attention(width)

    def forward(self, x, mask=None):
        mask = x.new_zeros(x.shape[0], 1, 1, x.shape[1]) if mask is None else mask
        return x + self.attention(x, mask)[0]
"""

RECURRENT = """\
import torch
from torch import nn


class Cell(nn.Module):
    def __init__(self, width=16, hidden=24):
        super().__init__()
        self.cell = nn.LSTM(width, hidden, num_layers=2, batch_first=True)

    def forward(self, x, state=None):
        if state is None:
            outputs, state = self.cell(x)
        else:
            outputs, state = self.cell(x, state)
        return outputs, state
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ("query @ key.transpose(-1, -2)", "torch.matmul(query, key.transpose(-1, -2))", "proved"),
        ("[past_key_value[1], value]", "[value, past_key_value[1]]", "refuted"),
        (
            "scores = query @",
            "key = key[:, :, -hidden_states.shape[1] :]\n"
            "        value = value[:, :, -hidden_states.shape[1] :]\n"
            "        scores = query @",
            "refuted",
        ),
    ],
    ids=["product as a function", "values before the others", "the cache is dropped"],
)
def test_keys_and_values_of_tokens_before(
    tmp_path: Path, before: str, after: str, status: str
) -> None:
    verdict = verdict_on(tmp_path, CACHED, before, after)
    assert verdict.status == status, verdict.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "status"),
    [
        ("result = self.cell(x, state)\n            outputs, state = result", "proved"),
        ("outputs, state = self.cell(x, (state[0], state[1] * 0.5))", "refuted"),
    ],
    ids=["named", "another state"],
)
def test_the_state_of_a_recurrent_network(tmp_path: Path, after: str, status: str) -> None:
    before = "outputs, state = self.cell(x, state)"
    verdict = verdict_on(tmp_path, RECURRENT, before, after)
    assert verdict.status == status, verdict.reason


FLAGGED = (
    CACHED[: CACHED.index("class Layer")]
    .replace("past_key_value=None):", "past_key_value=None, use_cache=False):")
    .replace(
        "return context, (key, value)", "return context, ((key, value) if use_cache else None)"
    )
)


@pytest.mark.slow
def test_keys_and_values_that_only_a_flag_asks_for(tmp_path: Path) -> None:
    right = verdict_on(tmp_path, FLAGGED, "/ math.sqrt(self.size)", "* self.size**-0.5")
    assert right.status == "proved", right.reason
    wrong = verdict_on(
        tmp_path, FLAGGED, "[past_key_value[1], value]", "[value, past_key_value[1]]"
    )
    assert wrong.status == "refuted", wrong.reason
