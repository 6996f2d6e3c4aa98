"""Test changes that act only where the same choice comes again, where masks are ones and zeros, or
where a backward pass draws other random numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from verdicts import verdict_on  # noqa: E402

from regraft.verification.child.call_arguments import Call  # noqa: E402
from regraft.verification.child.checks.mask_variants import binary_mask_calls  # noqa: E402
from regraft.verification.child.checks.value_variants import with_few_choices  # noqa: E402
from regraft.verification.child.parameter_alterations import FEW_ROWS, alteration_of  # noqa: E402

pytestmark = pytest.mark.usefixtures("here")

COLLAPSE = """\
import torch


def collapse(scores, lengths, blank: int = 0):
    rows = []
    for row, length in zip(scores.argmax(dim=-1).tolist(), lengths.tolist()):
        previous, kept = blank, []
        for token in row[:length]:
            if token != blank and token != previous:
                kept.append(token)
            previous = token
        rows.append(kept)
    return rows
"""
BLOCK = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, dim=16, p=0.1):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.drop = nn.Dropout(p)

    def inner(self, x):
        return self.fc(self.drop(torch.tanh(self.fc(x))))

    def forward(self, x):
        return x + checkpoint(self.inner, x, use_reentrant=False)
"""


def test_few_choices_come_again() -> None:
    scores = torch.randn(3, 8, 32)
    (raised,) = with_few_choices(Call((scores,), {})).args
    assert raised.argmax(-1).unique().tolist() == [0, 1, 2]
    assert int((raised != scores).sum()) == 24
    few_rows = alteration_of(FEW_ROWS)
    assert few_rows is not None
    altered = few_rows("fc.weight", torch.ones(5, 4))
    assert altered[:, 0].tolist() == pytest.approx([1, 1, 1, 0.01, 0.01])


def test_masks_of_zeros_become_ones_and_zeros() -> None:
    x, mask = torch.randn(3, 8, 5), torch.zeros(3, 32)
    calls = list(binary_mask_calls(Call((x, mask), {}), {"x": x, "mask": mask}))
    masks = [call.args[1] for call in calls]
    assert [tuple(value.shape) for value in masks] == [(3, 32), (3, 8), (3, 8)] * 2
    assert all(set(value.flatten().tolist()) == {0, 1} for value in masks)
    assert not list(binary_mask_calls(Call((x,), {}), {"x": x}))


@pytest.mark.slow
def test_a_repeated_choice_is_compared(tmp_path: Path) -> None:
    before = "kept.append(token)\n            previous = token"
    wrong = verdict_on(tmp_path, COLLAPSE, before, before.replace("\n", "\n    "))
    assert wrong.status == "refuted" and "few different choices" in wrong.reason
    right = verdict_on(
        tmp_path, COLLAPSE, "token != blank and token != previous", "token not in (blank, previous)"
    )
    assert right.status == "proved", right


@pytest.mark.slow
def test_a_backward_pass_drops_what_the_forward_pass_dropped(tmp_path: Path) -> None:
    after = "use_reentrant=False, preserve_rng_state=False)"
    wrong = verdict_on(tmp_path, BLOCK, "use_reentrant=False)", after)
    assert wrong.status == "refuted" and "dropout" in wrong.reason
