"""Test `regraft.watch`: what it records, what it leaves alone, and that `optimize` takes it."""

from __future__ import annotations

from collections import UserDict
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import regraft  # noqa: E402
from regraft.live import CallNotRecorded  # noqa: E402


class Scaled(nn.Module):
    def forward(self, x: Any, scale: Any = 1.0, **options: Any) -> Any:
        x += 1
        return x * scale


class Variadic(nn.Module):
    def forward(self, *xs: Any, scale: Any = 1.0) -> Any:
        return sum(xs) * scale


def test_calls_are_recorded_before_the_model_changes_them() -> None:
    model, x = Scaled(), torch.zeros(2, 3)
    with regraft.watch(model) as calls:
        model(x)
        model(torch.ones(2, 3))  # the same shapes
        model(torch.ones(4, 3), scale=2.0, kind="a")
    model(torch.ones(5, 3))
    assert [type(call) for call in calls] == [tuple, dict]
    assert torch.equal(calls[0][0], torch.zeros(2, 3)) and torch.equal(x, torch.ones(2, 3))
    assert calls[1].keys() == {"x", "scale", "kind"} and calls[1]["scale"] == 2.0


def test_the_number_of_calls_is_limited() -> None:
    model = nn.Linear(3, 3)
    with regraft.watch(model, most=2) as calls:
        for rows in range(1, 6):
            model(torch.ones(rows, 3))
    assert [len(call[0]) for call in calls] == [1, 2]
    with pytest.raises(ValueError, match="most is 0"), regraft.watch(model, most=0):
        pass


def test_the_model_is_not_watched_after_an_error() -> None:
    model = nn.Linear(3, 3)
    with pytest.raises(RuntimeError, match="mat1"), regraft.watch(model) as calls:
        model(torch.ones(2, 4))
    assert len(calls) == 1 and not model._forward_pre_hooks


def test_a_call_that_cannot_be_named_or_copied_is_left_out() -> None:
    model = Variadic()
    unnamed = pytest.warns(CallNotRecorded, match="xs cannot be passed by name")
    with unnamed, regraft.watch(model) as calls:
        model(torch.ones(2), torch.ones(2), scale=2.0)
    other = Scaled()
    uncopied = pytest.warns(
        CallNotRecorded, match="a call of Scaled was not recorded: cannot pickle"
    )
    with uncopied, regraft.watch(other) as other_calls:
        other(torch.ones(2), scale=1, source=(number for number in range(3)))
    assert calls == [] and other_calls == []


class Batch(UserDict[str, Any]):
    """A mapping that is not built of its items."""

    def __init__(self, items: Any) -> None:
        super().__init__(items)


def test_arguments_of_any_kind_leave_the_run_alone() -> None:
    class Summed(nn.Module):
        def forward(self, batch: Any) -> Any:
            return batch["x"].sum()

    model = Summed()
    uncopied = pytest.warns(CallNotRecorded, match="a call of Summed was not recorded")
    with uncopied, regraft.watch(model) as calls:
        assert model(Batch({"x": torch.ones(3)})) == 3
    assert calls == []


def test_copies_keep_gradients_wanted_and_can_be_trained_on() -> None:
    model, x = nn.Linear(3, 3), torch.ones(2, 3, requires_grad=True)
    with regraft.watch(model) as calls:
        model(x * 2)
        with torch.inference_mode():
            model(torch.ones(4, 3))
    (first,), (second,) = calls
    assert first.requires_grad and first.is_leaf
    assert not second.is_inference()
    model(second).sum().backward()
    assert model.weight.grad is not None


@pytest.mark.slow
def test_optimize_proves_on_the_calls_that_were_recorded(tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / "watched_model.py").write_text(
        "import torch\n"
        "from torch import nn\n\n\n"
        "class Attention(nn.Module):\n"
        "    def __init__(self, width):\n"
        "        super().__init__()\n"
        "        self.qkv = nn.Linear(width, 3 * width)\n\n"
        "    def forward(self, x, *, scale):\n"
        "        q, k, v = self.qkv(x).chunk(3, -1)\n"
        "        return (q @ k.transpose(-2, -1) * scale).softmax(-1) @ v\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    model = __import__("watched_model").Attention(32).eval()
    x = torch.randn(2, 16, 32)
    before = model(x, scale=0.25)
    with regraft.watch(model) as calls:
        model(x, scale=0.25)
    report = regraft.optimize(model, calls, select=["torch"])
    assert [change.method for change in report.changes] == ["Attention.forward"]
    torch.testing.assert_close(model(x, scale=0.25), before)
