"""Test modules whose `forward` other code calls directly, which runs no hooks."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from verdicts import verdict_on

from regraft.verification.child.call_recording import recording

pytestmark = pytest.mark.usefixtures("here")

MODEL = """\
import torch
from torch import nn


class Inner(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x, factor):
        return self.linear(x) * factor


class Outer(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.inner = Inner(width)

    def forward(self, x):
        return self.inner.forward(x, torch.tensor(2.0)) + 1
"""


@pytest.mark.slow
def test_its_calls_are_replayed(tmp_path: Path) -> None:
    before = "self.linear(x) * factor"
    right = verdict_on(tmp_path, MODEL, before, "torch.mul(self.linear(x), factor)")
    assert right.status == "proved", right.reason
    assert "inner" in str(right.evidence["instances"])
    wrong = verdict_on(tmp_path, MODEL, before, "self.linear(x) * factor.clamp(max=3)")
    assert wrong.status != "proved"


class Leaf(nn.Module):  # type: ignore[misc]
    """Adds to its input."""

    def forward(self, x: torch.Tensor, number: int = 1) -> torch.Tensor:
        return x + number


class Tree(nn.Module):  # type: ignore[misc]
    """Calls its leaf in both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.leaf = Leaf()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.leaf.forward(self.leaf(x), number=2)


def test_each_call_is_recorded_once_and_the_model_is_as_before() -> None:
    model = Tree()
    state = dict(vars(model.leaf))
    with recording(sys.modules[__name__], ("Leaf",), model) as recorder:
        assert torch.equal(model(torch.zeros(2)), torch.full((2,), 3.0))
        assert torch.equal(model(torch.zeros(3)), torch.full((3,), 3.0))
    assert [sorted(entry.call.kwargs) for entry in recorder.calls] == [[], ["number"], []]
    assert vars(model.leaf) == state and not model.leaf._forward_pre_hooks


class Patched(nn.Module):  # type: ignore[misc]
    """Replaces the `forward` of its leaf for a call, as some libraries do."""

    def __init__(self) -> None:
        super().__init__()
        self.leaf = Leaf()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        leaf: Any = self.leaf
        own_forward = leaf.forward
        leaf.forward = lambda x: 2 * own_forward(x)
        result: torch.Tensor = leaf(x)
        del leaf.forward
        return result


def test_a_call_may_replace_and_delete_the_forward_of_a_module() -> None:
    model = Patched()
    with recording(sys.modules[__name__], ("Leaf",), model) as recorder:
        assert torch.equal(model(torch.zeros(2)), torch.full((2,), 2.0))
    assert [entry.path for entry in recorder.calls] == ["leaf"]
    assert "forward" not in vars(model.leaf)


class Scale(nn.Module):  # type: ignore[misc]
    """Multiplies by its parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


class Copied(nn.Module):  # type: ignore[misc]
    """Runs a copy of its submodule with another parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = Scale()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        copied = copy.deepcopy(self.scale)
        copied.factor.data.fill_(3.0)
        return copied.forward(copied(x))


def test_a_copy_of_a_recorded_module_runs_with_its_own_parameters() -> None:
    with recording(sys.modules[__name__], ("Scale",), model := Copied()) as recorder:
        assert torch.equal(model(torch.ones(2)), torch.full((2,), 9.0))
    assert len(recorder.calls) == 1
