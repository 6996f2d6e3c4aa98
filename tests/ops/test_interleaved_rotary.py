"""Test rotary embeddings of neighbouring elements on CPU against their compositions: results,
gradients of both orders, exclusions."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from regraft.ops import (  # noqa: E402
    REFERENCES,
    implementation,
    interleaved_rotary,
    rotated_pairs,
)

OPS: dict[str, Any] = {"interleaved_rotary": interleaved_rotary, "rotated_pairs": rotated_pairs}
SHAPES = [
    ((2, 3, 5, 6), (1, 1, 5, 6)),
    ((2, 5, 3, 6), (2, 5, 1, 6)),
    ((4, 5, 6), (5, 6)),
    ((2, 2, 5, 6), (6,)),
]


def inputs(
    name: str, shape: tuple[int, ...], table: tuple[int, ...], dtype: Any = torch.float32
) -> list[Any]:
    """Return random arguments of an op, with tensors that are views of wider or transposed ones."""
    if name == "rotated_pairs":
        first, second = torch.randn(*shape, 2).to(dtype).unbind(-1)
        tensors = [first, second]
    else:
        tensors = [torch.randn(shape).to(dtype).transpose(0, 1).contiguous().transpose(0, 1)]
    return [*tensors, *(torch.randn(table).to(dtype) for _ in range(2))]


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize(("shape", "table"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_composition(
    name: str, shape: tuple[int, ...], table: tuple[int, ...], dtype: Any
) -> None:
    arguments = inputs(name, shape, table, dtype)
    assert implementation(name, *arguments) == "torch-native"
    runs = []
    for op in (OPS[name], REFERENCES[name]):
        leaves = [tensor.clone().requires_grad_() for tensor in arguments]
        output = op(*leaves)
        weights = torch.linspace(-1, 1, output.numel()).reshape(output.shape).to(dtype)
        slopes = torch.autograd.grad((output * output * weights).sum(), leaves, create_graph=True)
        second_slopes = torch.autograd.grad(sum(slope.square().sum() for slope in slopes), leaves)
        runs.append([output, *slopes, *second_slopes])
    for ours, theirs in zip(*runs, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", OPS)
def test_the_result_is_contiguous_where_that_of_the_composition_is(name: str) -> None:
    arguments = [tensor.transpose(0, 1) for tensor in inputs(name, (3, 2, 4, 6), (3, 1, 4, 6))]
    ours, theirs = OPS[name](*arguments), REFERENCES[name](*arguments)
    assert ours.stride() == theirs.stride()


@pytest.mark.parametrize("name", OPS)
def test_a_result_without_gradients_changes_in_place(name: str) -> None:
    factor = torch.tensor(2.0, requires_grad=True)
    arguments = inputs(name, (2, 3, 4, 6), (4, 6))
    with torch.no_grad():
        ours, theirs = OPS[name](*arguments), REFERENCES[name](*arguments)
    torch.testing.assert_close(ours.mul_(factor).detach_(), theirs.mul_(factor).detach_())


@pytest.mark.parametrize("name", OPS)
def test_half_precision(name: str) -> None:
    arguments = inputs(name, (2, 3, 5, 6), (5, 6), torch.bfloat16)
    ours, theirs = OPS[name](*arguments), REFERENCES[name](*arguments)
    torch.testing.assert_close(ours, theirs, rtol=5e-2, atol=5e-2)


def test_what_is_left_to_the_composition() -> None:
    *tensors, table, _ = inputs("rotated_pairs", (2, 3, 4, 6), (4, 6))
    half, short = table.bfloat16(), tensors[1][..., :1]
    for arguments in (
        (*tensors, half, half),
        (tensors[0], short, table, table),
        (*tensors, table, table[:1]),
        (*(tensor.long() for tensor in tensors), table, table),
    ):
        assert implementation("rotated_pairs", *arguments) == "reference"
        rotated = rotated_pairs(*arguments)
        torch.testing.assert_close(rotated, REFERENCES["rotated_pairs"](*arguments))
    compiled = torch.func.vmap(rotated_pairs, in_dims=(0, 0, None, None))(*tensors, table, table)
    torch.testing.assert_close(compiled, REFERENCES["rotated_pairs"](*tensors, table, table))


def test_an_odd_size_is_refused_as_by_the_composition() -> None:
    x, table = torch.randn(2, 4, 5), torch.randn(4, 5)
    for op in (interleaved_rotary, REFERENCES["interleaved_rotary"]):
        with pytest.raises(RuntimeError):
            op(x, table, table)


def test_torchscript_runs_the_composition() -> None:
    first, second, table, _ = inputs("rotated_pairs", (2, 3, 4, 6), (4, 6))
    scripted = torch.jit.script(rotated_pairs)(first, second, table, table)
    torch.testing.assert_close(scripted, rotated_pairs(first, second, table, table))
