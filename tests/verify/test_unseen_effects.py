"""Test effects that no result of a single call shows: which random numbers are drawn, values that
hooks keep, hooks of a constructor, settings of a device that is not here, positions that half
precision rounds, and equal whole numbers apart from each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from verdicts import verdict_on

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.usefixtures("here"), pytest.mark.slow]

HEAD = """\
import random

import torch
from torch import nn
from torch.nn import functional as F


"""
DROPPED = """\
class Model(nn.Module):
    def __init__(self, width=8, rate=0.5):
        super().__init__()
        self.rate = rate
        self.dense = nn.Linear(width, width)

    def forward(self, x):
        if self.training and torch.rand(()).item() < self.rate:
            return x
        return self.dense(x)


def shuffle(rows):
    return random.sample(rows, len(rows))
"""
BLOCK = """\
class Model(nn.Module):
    def __init__(self, channels=4):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        hidden = F.relu(self.first(x))
        return x + self.second(hidden)
"""
SCALED = """\
class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.dense.weight.register_hook(lambda grad: grad * 0.5)

    def forward(self, x):
        return self.dense(x)
"""
RENAMED = """\
def rename(state_dict, prefix, *_):
    if prefix + "gamma" in state_dict:
        state_dict[prefix + "weight"] = state_dict.pop(prefix + "gamma")


class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))
        self._register_load_state_dict_pre_hook(rename)

    def forward(self, x):
        return x * self.weight
"""
AUTOCAST = """\
class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, x):
        with torch.autocast("cuda", enabled=False):
            return self.dense(x).float()
"""
POSITIONS = """\
class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.register_buffer("speeds", torch.rand(width), persistent=False)

    def forward(self, x):
        places = torch.arange(x.shape[1], dtype=torch.float32)
        return torch.outer(places, self.speeds.float()).cos().to(x.dtype)
"""
COLLAPSED = """\
def collapse(ids: list[int], blank: int = 0):
    labels, previous = [], None
    for number in ids:
        if number != previous and number != blank:
            labels.append(number)
        previous = number
    return labels
"""
WRONG = {
    "random numbers of Python": (DROPPED, "torch.rand(()).item()", "random.random()"),
    "a result that hooks keep": (BLOCK, "F.relu(self.first(x))", "F.relu(self.first(x), True)"),
    "a hook of a parameter": (
        SCALED,
        "        self.dense.weight.register_hook(lambda grad: grad * 0.5)\n",
        "",
    ),
    "a hook of checkpoints": (
        RENAMED,
        "        self._register_load_state_dict_pre_hook(rename)\n",
        "",
    ),
    "positions in float16": (POSITIONS, "dtype=torch.float32)", "dtype=torch.float16).float()"),
    "equal numbers apart": (
        COLLAPSED,
        "if number != previous and number != blank:\n            labels.append(number)\n        ",
        "if number == blank:\n            continue\n        if number != previous:\n"
        "            labels.append(number)\n        ",
    ),
}
RIGHT = {
    "random numbers of PyTorch": (
        DROPPED,
        "torch.rand(()).item() < self.rate",
        "torch.rand(1).item() < self.rate",
    ),
    "a result of its own": (
        BLOCK,
        "F.relu(self.first(x))",
        "F.relu(self.first(x) * 1.0, True)",
    ),
    "positions in float32": (POSITIONS, "dtype=torch.float32)", "dtype=torch.float)"),
    "equal numbers apart": (
        COLLAPSED,
        "if number != previous and number != blank:",
        "if number != blank and number != previous:",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_another_effect_is_refuted(name: str, tmp_path: Path) -> None:
    text, before, after = WRONG[name]
    verdict = verdict_on(tmp_path, HEAD + text, before, after)
    assert verdict.status == "refuted", verdict.reason


@pytest.mark.parametrize("name", RIGHT)
def test_equal_effects_are_proved(name: str, tmp_path: Path) -> None:
    text, before, after = RIGHT[name]
    verdict = verdict_on(tmp_path, HEAD + text, before, after)
    assert verdict.status == "proved", verdict.reason


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without the device")
@pytest.mark.parametrize(
    ("after", "status"),
    [
        ("        return self.dense(x).float()\n", "unproven"),
        (
            '        with torch.amp.autocast("cuda", enabled=False):\n'
            "            wide = self.dense(x)\n"
            "        return wide.float()\n",
            "proved",
        ),
    ],
)
def test_a_setting_of_an_absent_device_stays(after: str, status: str, tmp_path: Path) -> None:
    before = AUTOCAST[AUTOCAST.index("        with") :]
    verdict = verdict_on(tmp_path, HEAD + AUTOCAST, before, after)
    assert verdict.status == status, verdict.reason
    assert (status == "proved") or "`autocast` for cuda" in verdict.reason
