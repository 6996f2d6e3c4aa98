"""Test that operands of new conditions which are texts, lists or None have to be true and false."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from verdicts import verdict_on  # noqa: E402

from regraft.verification.child.checks.condition_kinds import TRUTH  # noqa: E402
from regraft.verification.child.checks.condition_results import truth_results  # noqa: E402

pytestmark = pytest.mark.usefixtures("here")

TRUE, FALSE = TRUTH
HEAD = """\
from torch import nn


class Pool(nn.Module):
    def __init__(self, kind: str):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1) if kind == "avg" else nn.Identity()

    def forward(self, x):
        return self.pool(x)


class Head(nn.Module):
    def __init__(self, width: int = 8, pool_kind: str = "avg", is_convolution: bool = False):
        super().__init__()
        if not pool_kind:
            assert is_convolution
        self.pool = nn.Sequential(Pool(pool_kind), nn.Identity() if is_convolution else nn.Flatten(1))
        self.last = nn.Conv2d(width, 3, 1) if is_convolution else nn.Linear(width, 3)
        self.flatten = nn.Flatten(1) if is_convolution and pool_kind else nn.Identity()

    def forward(self, maps):
        return self.flatten(self.last(self.pool(maps)))
"""  # noqa: E501


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("same", [TRUE]),
        ("", [FALSE]),
        (None, [FALSE]),
        ([], [FALSE]),
        ((0,), [TRUE]),
        ({}, [FALSE]),
        (nn.Identity(), [TRUE, FALSE]),
        (torch.tensor([0, 1]), [TRUE, FALSE]),
        (torch.ones(0), []),
    ],
)
def test_the_truth_of_a_value(value: Any, expected: list[str]) -> None:
    assert list(truth_results(value)) == expected


@pytest.mark.slow
def test_a_text_that_never_was_empty_is_no_proof(tmp_path: Path) -> None:
    wrong = verdict_on(tmp_path, HEAD, "is_convolution and pool_kind", "is_convolution")
    assert wrong.status == "unproven" and "`pool_kind` never was false" in wrong.reason, wrong
