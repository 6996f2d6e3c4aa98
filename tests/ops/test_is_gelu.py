"""Test that `is_gelu` accepts only a provably exact GELU, in eager mode and in a compiled graph."""

from __future__ import annotations

import functools
import timeit
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F

from regraft.ops import is_gelu


class Wrapper(nn.Module):
    """An activation as other libraries have it: `forward` only calls the stored function."""

    def __init__(self, act: Any) -> None:
        super().__init__()
        self.act = act

    def forward(self, hidden: Any) -> Any:
        return self.act(hidden)


class OtherName(nn.Module):
    """A wrapper with other names."""

    def __init__(self) -> None:
        super().__init__()
        self.function = F.gelu

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the GELU."""
        return self.function(input)


class Scaled(Wrapper):
    """A wrapper that scales the result."""

    def forward(self, hidden: Any) -> Any:
        return self.act(hidden) * 2


class Twice(Wrapper):
    """A wrapper that activates twice."""

    def forward(self, hidden: Any) -> Any:
        return self.act(self.act(hidden))


class Many(Wrapper):
    """A wrapper with any number of arguments."""

    def forward(self, *hidden: Any) -> Any:
        return self.act(hidden)


class OwnCall(Wrapper):
    """A wrapper with a `__call__` of its own."""

    def __call__(self, hidden: Any) -> Any:
        return hidden


class OwnLookup(Wrapper):
    """A wrapper with an attribute lookup of its own."""

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name)


def hooked() -> nn.Module:
    """Return a GELU with a hook."""
    module = nn.GELU()
    module.register_forward_hook(lambda *_: None)
    return module


def replaced() -> nn.Module:
    """Return a wrapper whose forward was replaced."""
    module = Wrapper(F.gelu)
    module.forward = lambda hidden: hidden  # type: ignore[method-assign]
    return module


YES = [
    F.gelu,
    torch._C._nn.gelu,
    nn.GELU(),
    nn.GELU(approximate="none"),
    functools.partial(F.gelu),
    functools.partial(F.gelu, approximate="none"),
    Wrapper(F.gelu),
    OtherName(),
]
NO = [
    nn.GELU(approximate="tanh"),
    functools.partial(F.gelu, approximate="tanh"),
    functools.partial(F.gelu, 1),
    functools.partial(F.relu),
    Wrapper(F.relu),
    Wrapper(lambda x: F.gelu(x) + 0),
    Scaled(F.gelu),
    Twice(F.gelu),
    Many(F.gelu),
    OwnCall(F.gelu),
    OwnLookup(F.gelu),
    hooked(),
    replaced(),
    nn.ReLU(),
    nn.SiLU(),
    F.relu,
    "gelu",
    None,
    lambda x: F.gelu(x) + 0,
    type(nn.GELU()),
    nn.Sequential(nn.GELU()),
]


def label(activation: Any) -> str:
    """Return the name of the class of an activation."""
    return type(activation).__name__


@pytest.mark.parametrize("activation", YES, ids=label)
def test_yes(activation: Any) -> None:
    x = torch.randn(5)
    assert is_gelu(activation) is True
    assert torch.equal(activation(x), F.gelu(x))


@pytest.mark.parametrize("activation", NO, ids=label)
def test_no(activation: Any) -> None:
    assert is_gelu(activation) is False


def test_the_activations_of_transformers() -> None:
    activations = pytest.importorskip("transformers.activations")
    yes = {name for name in activations.ACT2FN if is_gelu(activations.ACT2FN[name])}
    assert yes == {"gelu"}
    assert not is_gelu(activations.GELUActivation(use_gelu_python=True))


@pytest.mark.parametrize(
    "activation",
    [*YES, *(activation for activation in NO if isinstance(activation, nn.Module))],
    ids=label,
)
def test_a_compiled_graph_holds_the_same_answer(activation: Any) -> None:
    torch._dynamo.reset()
    holder = nn.Module()
    holder.act = activation

    def which(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if is_gelu(holder.act) else x - 1

    compiled = torch.compile(which, fullgraph=True, backend="eager")
    x = torch.zeros(1)
    assert compiled(x).item() == (1 if is_gelu(activation) else -1)
    holder.act = nn.ReLU()  # the answer is guarded, not frozen
    assert compiled(x).item() == -1
    torch._dynamo.reset()


@pytest.mark.parametrize("activation", YES, ids=label)
def test_it_is_cheap(activation: Any) -> None:
    assert min(timeit.repeat(lambda: is_gelu(activation), number=2000, repeat=5)) / 2000 < 20e-6
