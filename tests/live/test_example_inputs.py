"""Test `regraft.optimize(model, example_inputs)`: the proof runs the caller's model."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import regraft  # noqa: E402
from regraft.live import NothingOptimized  # noqa: E402
from regraft.source.cache_key import cache_directory  # noqa: E402

FILES = {
    "__init__.py": "",
    "options.py": """\
class Options:
    def __init__(self, path):
        self.width, self.heads = map(int, open(path).read().split())
""",
    "layers.py": """\
import torch
from torch import nn
from torch.nn import functional as F

from .options import Options


class FeedForward(nn.Module):
    def __init__(self, options: Options):
        super().__init__()
        self.up = nn.Linear(options.width, 4 * options.width)
        self.down = nn.Linear(4 * options.width, options.width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Attention(nn.Module):
    def __init__(self, options: Options):
        super().__init__()
        self.heads = options.heads
        self.qkv = nn.Linear(options.width, 3 * options.width)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
        return (torch.softmax(scores, dim=-1) @ v).transpose(1, 2).reshape(b, n, c)


class Absent(nn.Module):
    def __init__(self, options: Options):
        super().__init__()
        self.up = nn.Linear(options.width, options.absent)

    def forward(self, x):
        return F.gelu(self.up(x))
""",
    "model.py": """\
from torch import nn

from .layers import Attention, FeedForward


class Model(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(Attention(options), FeedForward(options)) for _ in range(2)
        )

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x
""",
}
RULES = ["adopter"]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield a model of a package of several files, whose options only its own file can build."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("REGRAFT_CACHE_DIR", str(tmp_path / "cache"))
    package = tmp_path / "own_network"
    package.mkdir()
    for name, text in FILES.items():
        package.joinpath(name).write_text(text)
    Path("sizes.txt").write_text("16 2")
    options = importlib.import_module("own_network.options").Options("sizes.txt")
    torch.manual_seed(0)
    yield importlib.import_module("own_network.model").Model(options).eval()
    for name in [name for name in sys.modules if name.partition(".")[0] == "own_network"]:
        del sys.modules[name]


@pytest.mark.slow
def test_a_model_that_only_its_owner_can_build_is_rewritten(model: Any) -> None:
    x = torch.randn(2, 5, 16)
    before = model(x)
    result = regraft.optimize(model, [(x,), (torch.randn(1, 7, 16),)], packs=RULES)
    assert {change.method for change in result.changes} == {
        "FeedForward.forward",
        "Attention.forward",
    }
    torch.testing.assert_close(model(x), before)
    regraft.restore(model)
    assert torch.equal(model(x), before)


@pytest.mark.slow
def test_classes_that_the_model_does_not_have_are_not_named(model: Any) -> None:
    result = regraft.optimize(model, torch.randn(2, 5, 16), packs=RULES)
    assert "Absent" not in str(result)


@pytest.mark.slow
def test_the_copy_of_the_model_is_deleted(model: Any) -> None:
    regraft.optimize(model, torch.randn(2, 5, 16), packs=RULES)
    root = cache_directory()
    assert root is not None
    assert list(root.joinpath("models").iterdir()) == []


@pytest.mark.slow
def test_inputs_that_the_model_does_not_take_prove_nothing(model: Any) -> None:
    with pytest.warns(NothingOptimized, match="the original does not run"):
        regraft.optimize(model, torch.randn(2, 5, 17), packs=RULES)


@pytest.mark.parametrize("inputs", [[], [3], "text"], ids=str)
def test_inputs_that_are_no_calls(model: Any, inputs: Any) -> None:
    with pytest.raises(ValueError, match="a call or a list of calls"):
        regraft.optimize(model, inputs, packs=RULES)


def test_a_model_that_cannot_be_pickled(model: Any) -> None:
    model.function = lambda x: x
    with pytest.raises(ValueError, match=r"the model cannot be pickled.*leave example_inputs out"):
        regraft.optimize(model, torch.randn(2, 5, 16), packs=RULES)
