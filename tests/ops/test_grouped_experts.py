"""Test experts in two grouped products of PyTorch against experts one after the other: results,
gradients, exclusions."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from regraft.ops import REFERENCES, grouped_experts, implementation  # noqa: E402

pytestmark = pytest.mark.skipif(
    not hasattr(F, "grouped_mm"), reason="this PyTorch has no grouped product"
)
reference = REFERENCES["grouped_experts"]
NUMBER, WIDTH, INNER = 4, 16, 8
TOLERANCES = {
    torch.float32: (1e-5, 1e-6),
    torch.bfloat16: (2e-2, 2e-2),
    torch.float16: (3e-3, 3e-3),
}


def drawn(
    rows: int = 10, chosen: int = 2, dtype: Any = torch.float32, activation: Any = F.silu
) -> list[Any]:
    """Return random arguments of the op."""
    x = torch.randn(rows, WIDTH).to(dtype)
    gate_up = (torch.randn(NUMBER, 2 * INNER, WIDTH) / 4).to(dtype)
    down = (torch.randn(NUMBER, WIDTH, INNER) / 3).to(dtype)
    index = torch.stack([torch.randperm(NUMBER)[:chosen] for _ in range(rows)])
    return [x, index, torch.rand(rows, chosen).to(dtype), gate_up, down, activation, NUMBER]


def assert_agrees(arguments: list[Any]) -> None:
    """Assert that the op and its composition have equal results and gradients."""
    assert implementation("grouped_experts", *arguments) == "torch-native"
    rtol, atol = TOLERANCES[arguments[0].dtype]
    runs = []
    for op in (grouped_experts, reference):
        leaves = [arguments[place].clone().requires_grad_() for place in (0, 2, 3, 4)]
        output = op(leaves[0], arguments[1], *leaves[1:], *arguments[5:])
        slopes = torch.autograd.grad(
            output, leaves, torch.linspace(-1, 1, output.numel()).view_as(output).to(output.dtype)
        )
        runs.append([output, *slopes])
    for ours, theirs in zip(*runs, strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(
            ours, theirs, rtol=rtol, atol=atol * max(1.0, float(theirs.detach().abs().max()))
        )


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(("rows", "chosen"), [(1, 1), (1, 2), (10, 2), (7, 4)])
def test_the_composition(dtype: Any, rows: int, chosen: int) -> None:
    assert_agrees(drawn(rows, chosen, dtype))


@pytest.mark.parametrize(
    "activation", [nn.SiLU(), F.gelu, nn.GELU("tanh"), partial(F.gelu, approximate="tanh")], ids=str
)
def test_activations(activation: Any) -> None:
    assert_agrees(drawn(activation=activation))


def test_experts_that_nobody_chose_one_that_is_chosen_twice_and_wider_weights() -> None:
    arguments = drawn()
    arguments[1] = torch.zeros(10, 2, dtype=torch.int64)
    arguments[1][3:, 1] = 2
    assert_agrees(arguments)
    arguments = drawn(dtype=torch.bfloat16)
    arguments[2] = arguments[2].float()
    assert_agrees(arguments)
    arguments = drawn()
    arguments[0] = torch.randn(WIDTH, 10).T
    assert_agrees(arguments)


def test_second_derivatives() -> None:
    second_derivatives = []
    arguments = drawn()
    for op in (grouped_experts, reference):
        leaves = [arguments[place].clone().requires_grad_() for place in (0, 3)]
        output = op(leaves[0], arguments[1], arguments[2], leaves[1], *arguments[4:])
        (slope,) = torch.autograd.grad(output.sum(), leaves[0], create_graph=True)
        second_derivatives.append(torch.autograd.grad(slope.square().sum(), leaves))
    for ours, theirs in zip(*second_derivatives, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


class Noisy(nn.Module):
    """An activation that depends on all rows."""

    def forward(self, x: Any) -> Any:
        return x * x.mean()


def test_what_is_left_to_the_composition() -> None:
    none = drawn()
    none[1][2, 0] = NUMBER
    mixed = drawn()
    mixed[3] = mixed[3].double()
    empty = [argument[:0] if place < 3 else argument for place, argument in enumerate(drawn())]
    for arguments in (none, empty, drawn(activation=Noisy()), drawn(dtype=torch.float64)):
        assert implementation("grouped_experts", *arguments) == "reference"
        assert torch.equal(grouped_experts(*arguments), reference(*arguments))
    assert implementation("grouped_experts", *mixed) == "reference"
    narrow = drawn(dtype=torch.bfloat16)
    narrow[0], narrow[3], narrow[4] = (
        narrow[0][:, :12],
        narrow[3][..., :12].contiguous(),
        narrow[4][:, :12],
    )
    strided, shifted = drawn(), drawn()
    strided[3] = strided[3].mT.contiguous().mT
    shifted[4] = torch.randn(shifted[4].numel() + 1)[1:].view_as(shifted[4])
    for arguments in (narrow, strided, shifted):
        assert implementation("grouped_experts", *arguments) == "reference"
        assert torch.equal(grouped_experts(*arguments), reference(*arguments))
    hooked = nn.SiLU()
    hooked.register_forward_hook(lambda *_: None)
    assert implementation("grouped_experts", *drawn(activation=hooked)) == "reference"
    with torch.autocast("cpu"):
        assert implementation("grouped_experts", *drawn()) == "reference"
