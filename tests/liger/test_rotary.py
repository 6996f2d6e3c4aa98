"""Test the kernel of the rotary embedding: its layouts, and the defects of Liger's own function."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from regraft.ops import REFERENCES, implementation, rotary, rotary_pair  # noqa: E402

reference = REFERENCES["rotary_pair"]


def tables(shape: tuple[int, ...], dtype: Any = torch.float32) -> list[Any]:
    """Return cosines and sines of a shape, whose halves are equal."""
    angles = torch.rand(*shape[:-1], shape[-1] // 2, generator=torch.Generator().manual_seed(1)) * 6
    angles = torch.cat((angles, angles), -1)
    return [angles.cos().to(dtype), angles.sin().to(dtype)]


def pair(query: tuple[int, ...], key: tuple[int, ...], dtype: Any = torch.float32) -> list[Any]:
    """Return a random query and key with gradients."""
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in (query, key)
    ]


LAYOUTS = {
    "heads first": ((2, 4, 5, 8), (2, 2, 5, 8), (2, 1, 5, 8)),
    "one table": ((2, 4, 5, 8), (2, 1, 5, 8), (1, 1, 5, 8)),
    "heads last": ((2, 5, 4, 8), (2, 5, 2, 8), (2, 5, 1, 8)),
    "no batch": ((5, 4, 8), (5, 3, 8), (5, 1, 8)),
    "a table without batch": ((2, 4, 5, 8), (2, 2, 5, 8), (1, 5, 8)),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_every_layout_gives_what_the_composition_gives(
    name: str, dtype: Any, launches: list[str]
) -> None:
    query, key, table = LAYOUTS[name]
    cos_sin = tables(table, dtype)
    runs = []
    for op in (rotary_pair, reference):
        leaves = pair(query, key, dtype)
        outputs = op(*leaves, *cos_sin)
        loss = sum(
            (output * torch.linspace(-1, 1, output.numel()).reshape(output.shape).to(dtype)).sum()
            for output in outputs
        )
        runs.append([*outputs, *torch.autograd.grad(loss, leaves)])
    assert launches
    for actual, expected in zip(*runs, strict=True):
        torch.testing.assert_close(
            actual, expected, **({"rtol": 5e-3, "atol": 3e-3} if dtype == torch.float16 else {})
        )


def test_nothing_is_written_into_what_the_arguments_are_views_of(launches: list[str]) -> None:
    """Liger's own function turns the tensor that query and key are views of, and the gradients that
    it is handed."""
    projected = torch.randn(2, 5, 4 * 8, requires_grad=True)
    query = projected.view(2, 5, 4, 8).transpose(1, 2)
    copy, cos_sin = projected.detach().clone(), tables((2, 1, 5, 8))
    turned = rotary_pair(query, query, *cos_sin)
    assert launches
    assert torch.equal(projected, copy)
    slopes = [torch.ones_like(tensor) for tensor in turned]
    torch.autograd.grad(turned, projected, slopes)
    assert all(torch.equal(slope, torch.ones_like(slope)) for slope in slopes)


def test_tables_whose_halves_differ_run_as_the_composition(launches: list[str]) -> None:
    """The kernel reads the first half only: with interleaved tables it would be wrong."""
    query, key = pair((2, 4, 5, 8), (2, 4, 5, 8))
    cos, sin = (table.repeat_interleave(2, -1)[..., :8] for table in tables((2, 1, 5, 8)))
    assert implementation("rotary_pair", query, key, cos, sin) == "reference"
    ours, theirs = (op(query, key, cos, sin) for op in (rotary_pair, reference))
    assert all(torch.equal(actual, expected) for actual, expected in zip(ours, theirs, strict=True))
    assert not launches


def test_a_table_that_changes_is_compared_again() -> None:
    query, key = pair((2, 4, 5, 8), (2, 4, 5, 8))
    cos, sin = tables((2, 5, 8))
    arguments = query, key, cos.unsqueeze(1), sin.unsqueeze(1)
    assert implementation("rotary_pair", *arguments) == "liger"
    cos[..., 0] = 3.0
    assert implementation("rotary_pair", *arguments) == "reference"


def test_one_tensor_and_second_derivatives(launches: list[str]) -> None:
    cos, sin = tables((1, 1, 5, 8))
    second = []
    for op in (rotary, REFERENCES["rotary"]):
        x = pair((2, 4, 5, 8), (1,))[0]
        (slope,) = torch.autograd.grad(op(x, cos, sin).square().sum(), x, create_graph=True)
        second.append(torch.autograd.grad(slope.square().sum(), x)[0])
    torch.testing.assert_close(*second)
    assert launches


UNSUPPORTED = {
    "two dtypes": lambda q, k, c, s: (q.half(), k, c, s),
    "another width": lambda q, k, c, s: (q[..., :6], k, c, s),
    "two batches": lambda q, k, c, s: (q[:1], k, c, s),
    "a learned table": lambda q, k, c, s: (q, k, c.requires_grad_(), s),
    "two dimensions": lambda q, k, c, s: (q[0, 0], k[0, 0], c[0, 0], s[0, 0]),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_the_kernel_does_not_take_runs_as_the_composition(name: str) -> None:
    arguments = [*pair((2, 4, 5, 8), (2, 4, 5, 8)), *tables((1, 1, 5, 8))]
    assert implementation("rotary_pair", *arguments) == "liger"
    assert implementation("rotary_pair", *UNSUPPORTED[name](*arguments)) == "reference"
