"""Test the rounded softmax against its composition: results, gradients, exclusions."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from regraft.ops import REFERENCES, implementation, rounded_softmax  # noqa: E402

reference = REFERENCES["rounded_softmax"]
HALF = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("columns", [1, 7, 33, 128, 1000])
@pytest.mark.parametrize("scale", [0.1, 1, 30])
def test_one_unit_in_the_last_place_seldom(dtype: Any, columns: int, scale: float) -> None:
    x = (torch.randn(3, 40, columns) * scale).to(dtype)
    x[0, :, columns // 2 :] = -float("inf")  # as masks have it; a row of nothing else is NaN
    assert implementation("rounded_softmax", x, -1, dtype) == "torch-native"
    ours, theirs = rounded_softmax(x, -1, dtype), reference(x, -1, dtype)
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    torch.testing.assert_close(
        ours, theirs, rtol=2 * torch.finfo(dtype).eps, atol=1e-7, equal_nan=True
    )
    assert (ours.nan_to_num() != theirs.nan_to_num()).float().mean() < 1e-3


@pytest.mark.parametrize(
    "view",
    [lambda x: x.transpose(0, 2), lambda x: x[:, ::2], lambda x: x[:0], lambda x: x[..., :0]],
)
def test_views_and_nothing(view: Any) -> None:
    x = view(torch.randn(4, 6, 8).bfloat16())
    torch.testing.assert_close(
        rounded_softmax(x, 2, x.dtype), reference(x, 2, x.dtype), rtol=2**-7, atol=0
    )


def test_gradients_are_those_of_the_composition() -> None:
    x = torch.randn(4, 9).bfloat16()
    runs = []
    for op in (rounded_softmax, reference):
        leaf = x.clone().requires_grad_()
        output = op(leaf, -1, leaf.dtype)
        (slope,) = torch.autograd.grad((output * output).sum(), leaf)
        runs.append((output, slope))
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*runs, strict=True))
    with torch.no_grad():
        assert implementation("rounded_softmax", leaf, -1, leaf.dtype) == "torch-native"


def test_what_is_left_to_the_composition() -> None:
    x = torch.randn(4, 6)
    half = x.bfloat16()
    for arguments in (
        (x, -1, torch.bfloat16),
        (half, 0, half.dtype),
        (half, -1, torch.float16),
        (half, -1, "cpu"),
    ):
        assert implementation("rounded_softmax", *arguments) == "reference"
    assert rounded_softmax(half, 1, x).dtype == torch.float32  # whatever `Tensor.to` takes
    assert implementation("rounded_softmax", half.sum(), -1, half.dtype) == "reference"
    with torch.autocast("cpu"):
        assert implementation("rounded_softmax", half, -1, half.dtype) == "reference"
    mapped = torch.func.vmap(lambda row: rounded_softmax(row, -1, row.dtype))(half)
    assert torch.equal(mapped, reference(half, -1, half.dtype))
