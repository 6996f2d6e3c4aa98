"""Test the kernels of gated activations: the conditions for them, and the defects of patches
written by hand."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from regraft.ops import REFERENCES, gated_activation, implementation  # noqa: E402

reference = REFERENCES["gated_activation"]


class SiluOfPackage(nn.Module):
    """An activation that calls a function of torch, as those of transformers do."""

    def forward(self, x: Any) -> Any:
        return nn.functional.silu(x)


class Stored(nn.Module):
    """An activation that calls a stored function."""

    def __init__(self, act: Callable[..., Any]) -> None:
        super().__init__()
        self.act = act

    def forward(self, x: Any) -> Any:
        return self.act(x)


def hooked() -> nn.Module:
    """Return a SiLU with a hook."""
    act = nn.SiLU()
    act.register_forward_hook(lambda *_: None)
    return act


TANH = functools.partial(F.gelu, approximate="tanh")
KERNELS = [nn.SiLU(), F.silu, SiluOfPackage(), Stored(F.silu), nn.GELU("tanh"), TANH, Stored(TANH)]
UNSUPPORTED = [
    nn.ReLU(),
    nn.GELU(),
    F.gelu,
    Stored(F.gelu),
    Stored(nn.SiLU()),
    hooked(),
    lambda x: x,
    nn.SiLU(inplace=True),
]


def factors(dtype: Any = torch.float32) -> list[Any]:
    """Return two random tensors with gradients."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 3, 9, generator=generator).to(dtype).requires_grad_() for _ in range(2)]


def results(op: Callable[..., Any], dtype: Any, act: Any) -> list[Any]:
    """Return the result of an op and the gradients of its factors."""
    leaves = factors(dtype)
    result = op(*leaves, act)
    slope = torch.linspace(-1, 1, result.numel()).reshape(result.shape).to(dtype)
    return [result, *torch.autograd.grad(result, leaves, slope)]


@pytest.mark.parametrize("act", KERNELS, ids=lambda act: getattr(act, "__name__", repr(act)))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_kernel_gives_what_the_activation_gives(
    act: Any, dtype: Any, launches: list[str]
) -> None:
    ours, theirs = (results(op, dtype, act) for op in (gated_activation, reference))
    assert launches
    for actual, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(
            actual, expected, **({"rtol": 5e-3, "atol": 1e-3} if dtype == torch.float16 else {})
        )


@pytest.mark.parametrize("act", UNSUPPORTED, ids=lambda act: getattr(act, "__name__", repr(act)))
def test_what_the_configuration_says_is_computed(act: Any, launches: list[str]) -> None:
    """Patches written by hand ignore `hidden_act`: they compute SiLU where the model says GELU or
    ReLU."""
    assert implementation("gated_activation", *factors(), act) == "reference"
    gate, up = factors()
    assert torch.equal(gated_activation(gate.clone(), up, act), act(gate.clone()) * up)
    assert not launches


def test_the_backward_pass_can_be_run_again(launches: list[str]) -> None:
    """Liger's own function writes the gradients over its inputs: a second backward pass would be
    wrong."""
    leaves = gate, up = factors()
    copies = [leaf.detach().clone() for leaf in leaves]
    result = gated_activation(gate, up, F.silu)
    first_gradients, second_gradients = (
        torch.autograd.grad(result.sum(), leaves, retain_graph=True) for _ in range(2)
    )
    assert launches
    assert all(
        torch.equal(left, right)
        for left, right in zip(
            (*first_gradients, *leaves), (*second_gradients, *copies), strict=True
        )
    )


def test_second_derivatives_are_those_of_the_activation() -> None:
    second = []
    for op in (gated_activation, reference):
        leaves = gate, up = factors()
        slopes = torch.autograd.grad(op(gate, up, F.silu).square().sum(), leaves, create_graph=True)
        second.append(torch.autograd.grad(sum(slope.square().sum() for slope in slopes), leaves))
    for actual, expected in zip(*second, strict=True):
        torch.testing.assert_close(actual, expected)


def test_halves_of_one_projection(launches: list[str]) -> None:
    x = torch.randn(2, 5, 8, requires_grad=True)
    gate, up = x.chunk(2, -1)
    ours = gated_activation(gate, up, F.silu)
    (slope,) = torch.autograd.grad(ours.sum(), x)
    theirs = reference(*x.chunk(2, -1), F.silu)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(slope, torch.autograd.grad(theirs.sum(), x)[0])
    assert launches


def test_factors_of_two_shapes_or_dtypes_run_as_the_composition() -> None:
    gate, up = factors()
    assert implementation("gated_activation", gate, up, F.silu) == "liger"
    assert implementation("gated_activation", gate, up[..., :1], F.silu) == "reference"
    assert implementation("gated_activation", gate, up.half(), F.silu) == "reference"
    assert implementation("gated_activation", gate, up, F.gelu, approximate="tanh") == "liger"
