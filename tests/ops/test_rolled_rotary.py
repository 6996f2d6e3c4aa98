"""Test the rotary embedding on CPU against its composition: results, gradients of both orders,
exclusions."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from regraft.ops import REFERENCES, implementation, rolled_rotary  # noqa: E402

reference = REFERENCES["rolled_rotary"]
SHAPES = [
    ((2, 3, 5, 6), (1, 1, 5, 6)),
    ((2, 5, 3, 6), (2, 5, 1, 6)),
    ((4, 5, 6), (5, 6)),
    ((2, 2, 5, 6), (6,)),
]


@pytest.mark.parametrize(("shape", "table"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("views", [False, True])
def test_the_composition(
    shape: tuple[int, ...], table: tuple[int, ...], dtype: Any, views: bool
) -> None:
    x = torch.randn(shape).to(dtype)
    x = x.transpose(0, 1).contiguous().transpose(0, 1) if views else x
    cos, sin = (torch.randn(table).to(dtype) for _ in range(2))
    assert implementation("rolled_rotary", x, cos, sin) == "torch-native"
    runs = []
    for op in (rolled_rotary, reference):
        leaves = [tensor.clone().requires_grad_() for tensor in (x, cos, sin)]
        output = op(*leaves)
        weights = torch.linspace(-1, 1, output.numel()).reshape(output.shape).to(dtype)
        slopes = torch.autograd.grad((output * output * weights).sum(), leaves, create_graph=True)
        second_slopes = torch.autograd.grad(sum(slope.square().sum() for slope in slopes), leaves)
        runs.append([output, *slopes, *([] if dtype == torch.bfloat16 else second_slopes)])
    for ours, theirs in zip(*runs, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        torch.testing.assert_close(
            ours, theirs, **({"rtol": 5e-2, "atol": 0.25} if dtype == torch.bfloat16 else {})
        )


def test_float64_has_the_bits_but_for_one_rounding() -> None:
    x, cos, sin = torch.randn(2, 3, 5, 6), torch.randn(5, 6), torch.randn(5, 6)
    exact = reference(x.double(), cos.double(), sin.double())
    for op in (rolled_rotary, reference):
        assert (op(x, cos, sin) - exact).abs().max() < 1e-6


def test_what_is_left_to_the_composition() -> None:
    x, table = torch.randn(2, 3, 4, 6), torch.randn(4, 6)
    half, wide = table.bfloat16(), torch.randn(2, 3, 4, 6)
    for arguments in (
        (x, half, half),
        (x, table, wide),
        (x[..., :1], table, table),
        (x.long(), table, table),
    ):
        assert implementation("rolled_rotary", *arguments) == "reference"
    with torch.autocast("cpu"):
        assert implementation("rolled_rotary", x, table, table) == "reference"
    compiled = torch.func.vmap(rolled_rotary, in_dims=(0, None, None))(x, table, table)
    torch.testing.assert_close(compiled, reference(x, table, table))


def test_odd_sizes_are_halved_as_slices_or_chunks_do() -> None:
    x, cos, sin = torch.randn(2, 3, 4, 5), torch.randn(4, 5), torch.randn(4, 5)
    sliced = torch.cat((-x[..., 5 // 2 :], x[..., : 5 // 2]), dim=-1)
    torch.testing.assert_close(rolled_rotary(x, cos, sin), x * cos + sliced * sin)
    first, second = x.chunk(2, dim=-1)
    chunked = torch.cat((-second, first), dim=-1)
    torch.testing.assert_close(
        rolled_rotary(x, cos, sin, larger_first=True), x * cos + chunked * sin
    )


def test_an_odd_size_is_refused_where_halves_have_to_be_equal() -> None:
    x, table = torch.randn(2, 3, 4, 6), torch.randn(4, 6)
    ours = rolled_rotary(x, table, table, larger_first=None)
    assert implementation("rolled_rotary", x, table, table, None) == "torch-native"
    assert torch.equal(ours, rolled_rotary(x, table, table))
    for dtype in (torch.float32, torch.int64):
        odd = torch.ones(3, 4, 5, dtype=dtype)
        with pytest.raises(ValueError, match="an even size, not 5"):
            rolled_rotary(odd, odd[0], odd[0], larger_first=None)
