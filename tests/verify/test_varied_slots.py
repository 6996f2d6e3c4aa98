"""Test that inputs which a search made all equal get different values where a model takes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from verdicts import verdict_on  # noqa: E402

from regraft.verification.child.drivers import input_guesses  # noqa: E402
from regraft.verification.child.drivers.argument_slots import (  # noqa: E402
    BATCH,
    LENGTH,
    Dim,
    Slot,
)
from regraft.verification.child.drivers.varied_slots import more_varied_slot  # noqa: E402

pytestmark = pytest.mark.usefixtures("here")


def range_within(first: int, last: int) -> Callable[[Slot], bool]:
    """Return a function that accepts slots of ids from `first` to `last`."""
    return lambda slot: first <= min(slot.lowest, slot.limit - 1) and slot.limit - 1 <= last


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(0, 4, (0, 5)), (0, 1, (0, 2)), (1, 7, (1, 8)), (0, 99, (0, 16)), (1, 1, None)],
)
def test_ids_get_the_range_that_is_accepted(first: int, last: int, expected: Any) -> None:
    slot = more_varied_slot(Slot("ids", (BATCH, LENGTH), 2), range_within(first, last))
    assert (slot and (slot.lowest, slot.limit)) == expected


def test_ids_that_differ_stay() -> None:
    assert more_varied_slot(Slot("ids", (BATCH, LENGTH), 9), lambda _: True) is None


def test_a_constant_of_fixed_length_becomes_a_mask() -> None:
    slot = more_varied_slot(Slot("additive", (BATCH, Dim(32))), lambda _: True)
    assert slot == Slot("mask", (BATCH, LENGTH))
    assert more_varied_slot(Slot("additive", (BATCH, Dim(32))), lambda _: False) is None
    assert more_varied_slot(Slot("additive", (BATCH, LENGTH)), lambda _: True) is None


CHAIN = """\
import torch
from torch import nn


class Chain(nn.Module):
    def __init__(self, num_tags: int = 5):
        super().__init__()
        self.end = nn.Parameter(torch.randn(num_tags))
        self.transitions = nn.Parameter(torch.randn(num_tags, num_tags))

    def forward(self, emissions, tags, mask):
        batch, length, _ = emissions.shape
        rows = torch.arange(batch)
        score = emissions[rows, 0, tags[:, 0]]
        for t in range(1, length):
            step = self.transitions[tags[:, t - 1], tags[:, t]] + emissions[rows, t, tags[:, t]]
            score = score + step * mask[:, t]
        last = mask.long().sum(1) - 1
        return score + self.end[tags[rows, last]]
"""


def test_tags_of_a_chain_differ() -> None:
    names: dict[str, Any] = {}
    exec(CHAIN, names)
    chain: nn.Module = names["Chain"]().eval()
    accepted = input_guesses.find_accepted(chain, inner=True, width=5)
    tags = accepted.spec["tags"]
    assert (tags.lowest, tags.limit) == (0, 5) and accepted.spec["mask"].kind == "mask"


@pytest.mark.slow
def test_another_tag_of_a_chain_is_refuted(tmp_path: Path) -> None:
    before, after = "self.end[tags[rows, last]]", "self.end[tags[:, -1]]"
    assert verdict_on(tmp_path, CHAIN, before, after).status == "refuted"
