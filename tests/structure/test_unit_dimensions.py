"""Test which tensors the source broadcasts against each other."""

from __future__ import annotations

import pytest

from conftest import body_of
from regraft.structure.unit_dimensions import are_crossed
from regraft.structure.values_and_nodes import Value

CROSSED = [
    "x[:, None] - y[None]",
    "x[:, None, :] - y[None, :, :]",
    "x[..., None, :] - y[..., None, :, :]",
    "x.unsqueeze(1) - y.unsqueeze(0)",
    "x.unsqueeze(-2) - torch.unsqueeze(y, -3)",
    "x.view(-1, 1, 3) - y.reshape(1, -1, 3)",
    "x.unsqueeze(1).to(torch.float32) - y[None].detach()",
    "rearrange(x, 'n d -> n 1 d') - rearrange(y, 'k d -> () k d')",
    "x[:, None] - x",
    "x - x.unsqueeze(1)",
    "x[..., None, :] - x",
    "x[:, :, None] - y[:, None]",
]
NOT_CROSSED = [
    "x - y",
    "x[:, None] - y[:, None]",
    "x[:, None] - y",
    "x - x[None]",
    "x - x.unsqueeze(0)",
    "x[:, 0] - y[0]",
    "x[index, None] - y[None, index]",
    "x[:, [None]] - y[None]",
    "x.unsqueeze(dim) - y.unsqueeze(0)",
    "x.unsqueeze(1) - y.unsqueeze(-3)",
    "x.view(shape) - y.view(1, -1, 3)",
    "x.mean(1)[:, None] - y",
    "rearrange(x, '... d -> ... 1 d') - rearrange(y, '... d -> ... 1 d')",
    "x.unsqueeze(1).sum(0) - y.unsqueeze(0).sum(0)",
]
EXPANDED = "x.unsqueeze(1).expand(n, n, 3) - y.unsqueeze(0).expand(n, n, 3)"


def operands(*lines: str) -> tuple[Value, Value]:
    """Return the operands of the only difference in a function with these lines."""
    _, body = body_of(
        "import torch\nfrom einops import rearrange\n\n\n"
        "def f(x, y, n, dim, shape, index):\n" + "".join(f"    {line}\n" for line in lines),
        "f",
    )
    (node,) = body.index["sub"]
    return node.args["input"], node.args["other"]


@pytest.mark.parametrize("expression", CROSSED)
def test_pairs(expression: str) -> None:
    assert are_crossed(*operands(f"return {expression}"))
    assert not are_crossed(*operands(f"return {expression}"), expanded=True)


@pytest.mark.parametrize("expression", [*NOT_CROSSED, EXPANDED])
def test_what_is_not_certainly_all_pairs(expression: str) -> None:
    assert not are_crossed(*operands(f"return {expression}"))


def test_expanded_tensors_that_nothing_else_uses() -> None:
    assert are_crossed(*operands(f"return {EXPANDED}"), expanded=True)
    steps = ["a = x.unsqueeze(1).expand(n, n, 3)", "b = y.unsqueeze(0).expand(n, n, 3)"]
    assert are_crossed(*operands(*steps, "return a - b"), expanded=True)
    assert not are_crossed(*operands(*steps, "return a - b, a"), expanded=True)
    hooked = "b.register_hook(print)"
    assert not are_crossed(*operands(*steps, hooked, "return a - b"), expanded=True)
    unknown = "x.expand(n, n, 3) - y.expand(n, n, 3)"
    assert not are_crossed(*operands(f"return {unknown}"), expanded=True)
