"""Test distances and cosines of all pairs against their compositions: results, gradients, second
derivatives, near and equal points, numbers that are not finite, exclusions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from regraft.ops import (  # noqa: E402
    REFERENCES,
    distances,
    implementation,
    pairwise_cosine,
    pairwise_product,
    squared_distances,
)

OPS: dict[str, Callable[..., Any]] = {
    "squared_distances": squared_distances,
    "distances": distances,
    "pairwise_cosine": pairwise_cosine,
    "pairwise_product": pairwise_product,
}
LAYOUTS = {
    "rows and columns": ((9, 1, 4), (1, 7, 4), -1),
    "columns and rows": ((1, 9, 4), (7, 1, 4), 2),
    "batches": ((3, 9, 1, 4), (3, 1, 7, 4), 3),
    "batches with one table": ((3, 9, 1, 4), (7, 4), -1),
    "rows alone": ((9, 1, 4), (7, 4), -1),
    "features in front": ((4, 9, 1), (4, 1, 7), 0),
    "rows of rows": ((2, 3, 1, 4), (1, 1, 7, 4), -1),
}


@pytest.fixture(autouse=True)
def forced_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run kernels for small tensors, too, on the same numbers in every test."""
    monkeypatch.setenv("REGRAFT_KERNELS", "always")
    torch.manual_seed(0)


def derivatives(op: Callable[..., Any], x: Any, y: Any, dim: int) -> tuple[Any, ...]:
    """Return the result of an op, its gradients, and gradients of these."""
    leaves = x.clone().requires_grad_(), y.clone().requires_grad_()
    result = op(*leaves, dim)
    first = torch.autograd.grad(weighted(result), leaves, create_graph=True)
    second = torch.autograd.grad(sum(map(weighted, first)), leaves)
    return result, *first, *second


def weighted(tensor: Any) -> Any:
    """Return a sum in which every number has another weight."""
    weights = torch.linspace(-1, 1, tensor.numel(), dtype=tensor.dtype)
    return (tensor * weights.reshape(tensor.shape)).sum()


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_results_and_both_derivatives(name: str, layout: str) -> None:
    first, second, dim = LAYOUTS[layout]
    x, y = torch.randn(first, dtype=torch.float64), torch.randn(second, dtype=torch.float64)
    assert implementation(name, x, y, dim) == "matmul"
    ours, theirs = (derivatives(op, x, y, dim) for op in (OPS[name], REFERENCES[name]))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)
    assert ours[0].is_contiguous() and not OPS[name](x, y, dim)._is_view()


@pytest.mark.parametrize("name", [name for name in OPS if name != "pairwise_cosine"])
@pytest.mark.parametrize("layout", ["batches", "features in front", "rows of rows"])
def test_a_dimension_of_size_one_that_is_kept(name: str, layout: str) -> None:
    first, second, dim = LAYOUTS[layout]
    x, y = torch.randn(first, dtype=torch.float64), torch.randn(second, dtype=torch.float64)
    for number in (dim, dim - x.dim() if dim >= 0 else dim + x.dim()):
        ours = OPS[name](x, y, number, keepdim=True)
        torch.testing.assert_close(ours, REFERENCES[name](x, y, number, keepdim=True))
        assert ours.is_contiguous() and not ours._is_view()


@pytest.mark.parametrize("distance", [1e-1, 1e-3, 1e-6])
@pytest.mark.parametrize("offset", [0, 1000])
def test_near_points_far_from_the_origin_keep_their_distance(distance: float, offset: int) -> None:
    x = torch.randn(40, 1, 8) + offset
    y = (x + distance * torch.randn(40, 1, 8)).transpose(0, 1)
    exact = ((x.double() - y.double()) ** 2).sum(-1)
    for result, power in ((squared_distances(x, y, -1), 1), (distances(x, y, -1) ** 2, 1)):
        torch.testing.assert_close(result.double() ** power, exact, rtol=4e-6, atol=0)
    assert implementation("squared_distances", x, y, -1) == "matmul"


def test_equal_points_are_at_no_distance_and_have_no_gradient() -> None:
    x = torch.randn(20, 5).requires_grad_()
    squares, lengths = (op(x[:, None], x[None], -1) for op in (squared_distances, distances))
    assert torch.equal(squares.diagonal(), torch.zeros(20))
    assert torch.equal(lengths.diagonal(), torch.zeros(20))
    (slope,) = torch.autograd.grad(lengths.diagonal().sum(), x)
    assert torch.equal(slope, torch.zeros(20, 5))
    (slope,) = torch.autograd.grad(squares.sqrt().sum(), x)
    assert slope.isnan().all()  # as that of the composition


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e30])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("name", OPS)
def test_numbers_that_are_not_finite(name: str, side: int, bad: float) -> None:
    x, y = torch.randn(9, 1, 4), torch.randn(1, 7, 4)
    (x, y)[side].view(-1, 4)[2, 1] = bad
    torch.testing.assert_close(OPS[name](x, y, -1), REFERENCES[name](x, y, -1), equal_nan=True)


def test_many_near_pairs_are_left_to_the_composition() -> None:
    x = 100 + torch.randn(30, 1, 4) * 1e-3
    y = torch.cat((x, x + 1e-5, -x)).transpose(0, 1)
    assert implementation("distances", x, y, -1) == "reference"
    assert torch.equal(distances(x, y, -1), REFERENCES["distances"](x, y, -1))


def test_small_lengths_of_the_cosine_are_differentiated_as_in_pytorch() -> None:
    x, y = torch.randn(5, 1, 4), torch.randn(1, 7, 4)
    x[0], x[1] = 0, x[1] * 1e-9
    leaves = []
    for op in (pairwise_cosine, REFERENCES["pairwise_cosine"]):
        leaf = x.clone().requires_grad_()
        result = op(leaf, y, -1, eps=1e-6)
        leaves.append((result, *torch.autograd.grad(weighted(result), leaf)))
    for ours, theirs in zip(*leaves, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", OPS)
def test_what_is_left_to_the_composition(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = torch.randn(9, 1, 4), torch.randn(1, 7, 4)
    excluded = (
        (x.bfloat16(), y.bfloat16(), -1),
        (x, y.double(), -1),
        (x, x, -1),
        (x, y[..., :1], -1),
        (x[:0], y, -1),
        (x, y, 1),
        (x, y, 7),
        (torch.randn(9, 1, 3, 4), torch.randn(1, 7, 3, 4), -1),
    )
    for arguments in excluded:
        assert implementation(name, *arguments) == "reference", arguments
    with torch.autocast("cpu"):
        assert implementation(name, x, y, -1) == "reference"
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        assert implementation(name, x, y, -1) == "reference"
    finally:
        torch.set_float32_matmul_precision(precision)
    monkeypatch.delenv("REGRAFT_KERNELS")
    assert implementation(name, x, y, -1) == "reference"
    wide = torch.randn(300, 1, 20), torch.randn(1, 300, 20)
    assert implementation(name, *wide, -1) == "matmul"


@pytest.mark.parametrize("name", OPS)
def test_transformations_of_functions(name: str) -> None:
    x, y = torch.randn(3, 9, 1, 4), torch.randn(3, 1, 7, 4)
    mapped = torch.func.vmap(lambda a, b: OPS[name](a, b, -1))(x, y)
    torch.testing.assert_close(mapped, REFERENCES[name](x, y, -1))
    with torch.no_grad():
        OPS[name](x, y, -1).add_(torch.ones(()).requires_grad_())  # no view without gradients


def expanded_pair(x: Any) -> tuple[Any, Any]:
    """Return a tensor expanded along rows and along columns."""
    shape = (len(x), *x.shape)
    return x.unsqueeze(0).expand(shape), x.unsqueeze(1).expand(shape)


@pytest.mark.parametrize("name", OPS)
def test_expanded_tensors(name: str) -> None:
    results = []
    for op in (OPS[name], REFERENCES[name]):
        x = torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        x.requires_grad_()
        made = op(*expanded_pair(x * 2), dim=2, expanded=True)
        (slope,) = torch.autograd.grad(weighted(made), x, create_graph=True)
        results.append((made, slope, *torch.autograd.grad(weighted(slope), x)))
    assert implementation(name, *expanded_pair(x), 2, expanded=True) == "matmul"
    assert implementation(name, *expanded_pair(x), 2) == "reference"
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)
    with torch.no_grad():
        ours, theirs = (
            op(*expanded_pair(x), 2, expanded=True) for op in (OPS[name], REFERENCES[name])
        )
        torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_expanded_tensors_that_stay_as_they_are() -> None:
    x = torch.randn(9, 4, requires_grad=True)
    rows, columns = expanded_pair(x * 2)
    rows.retain_grad()
    squared_distances(rows, columns, 2, expanded=True).sum().backward()
    assert rows.grad is not None and rows.grad.shape == (9, 9, 4)
    leaf = torch.randn(1, 9, 4).expand(9, 9, 4).requires_grad_()
    squared_distances(leaf, columns.detach(), 2, expanded=True).sum().backward()
    assert leaf.grad is not None
    # more than the pairs: a batch, and the coordinates
    batch = [part.expand(3, 9, 9, 4) for part in expanded_pair(x)]
    made = squared_distances(batch[0], batch[1], -1, expanded=True)
    assert torch.equal(made, REFERENCES["squared_distances"](*batch, -1))
    narrow = x[:, :1]
    wide = [narrow.unsqueeze(place).expand(9, 9, 4) for place in (0, 1)]
    made = squared_distances(wide[0], wide[1], -1, expanded=True)
    torch.testing.assert_close(made, REFERENCES["squared_distances"](*wide, -1))
