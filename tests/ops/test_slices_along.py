"""Test the slices of a tensor for a loop against the subscripts that they replace."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from regraft.ops import implementation, slices_along  # noqa: E402


def subscript(x: Any, dim: int, index: Any) -> Any:
    """Return the slice as source takes it."""
    if dim < 0:
        return x[(..., index, *(slice(None),) * (-dim - 1))]
    return x[(*(slice(None),) * dim, index)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2])
@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 1, 1), (0, 2, 3), (2, 3, 0)])
def test_each_slice_is_the_subscript(shape: tuple[int, ...], dim: int, dtype: Any) -> None:
    x = (torch.randn(shape) * 4).to(dtype)
    slices = slices_along(x, dim)
    assert implementation("slices_along", x, dim) == "torch-native"
    assert len(slices) == shape[dim]
    for index in range(-shape[dim], shape[dim]):
        ours, theirs = slices[index], subscript(x, dim, index)
        assert torch.equal(ours, theirs) and ours.stride() == theirs.stride()
        assert ours.data_ptr() == theirs.data_ptr()
    with pytest.raises(IndexError):
        slices[shape[dim]]


def test_gradients_to_the_second_are_the_same() -> None:
    x = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)

    def scan(take: Any) -> Any:
        state = torch.zeros(2, 3, dtype=torch.float64)
        for t in range(4):  # one slice is not taken
            state = torch.tanh(state * take(t)) + take(t)
        return state

    slices = slices_along(x, 1)
    results = [scan(lambda t: slices[t]), scan(lambda t: x[:, t])]
    gradients = [torch.autograd.grad(y.sum(), x, create_graph=True)[0] for y in results]
    assert torch.equal(*results) and torch.equal(*gradients)
    seconds = [torch.autograd.grad((g * g).sum(), x)[0] for g in gradients]
    torch.testing.assert_close(*seconds)


class Recording(list):  # type: ignore[type-arg]
    """A list that notes what it is asked for."""

    def __getitem__(self, index: Any) -> Any:
        return "item", index


def test_what_is_no_tensor_of_these_dimensions_gives_its_items_when_they_are_taken() -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(24).reshape(2, 3, 4)
    for dim in (0, 1, -1, -2):
        assert (slices_along(array, dim)[1] == subscript(array, dim, 1)).all()
    assert slices_along(Recording(), 1)[3] == ("item", (slice(None), 3))
    assert implementation("slices_along", torch.randn(3), 1) == "reference"
    missing = slices_along(torch.randn(3), 1)  # as long as no step is taken, nothing is wrong
    with pytest.raises(IndexError):
        missing[0]
    nothing: Any = None
    slices_along(nothing, 1)


def test_a_few_of_many_slices_are_taken_one_by_one_and_many_together() -> None:
    x = torch.randn(2, 3000, dtype=torch.float64, requires_grad=True)
    slices = slices_along(x, 1)
    few = [slices[t] for t in range(20)]
    assert {type(y.grad_fn).__name__ for y in few} == {"SelectBackward0"}
    many = [slices[t] for t in range(20, 2900)]
    assert type(many[-1].grad_fn).__name__ == "UnbindBackward0"
    weights = torch.randn(2900, dtype=torch.float64)
    ours = sum(y.sum() * w for y, w in zip(few + many, weights, strict=True))
    theirs = sum(x[:, t].sum() * w for t, w in enumerate(weights))
    gradients = [torch.autograd.grad(total, x)[0] for total in (ours, theirs)]
    assert torch.equal(ours, theirs) and torch.equal(*gradients)
    with pytest.raises(IndexError):
        slices[3000]


def test_nested_and_sparse_tensors_are_subscripted() -> None:
    nested = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)])
    assert torch.equal(slices_along(nested, 0)[1], nested[1])
    assert implementation("slices_along", torch.eye(3).to_sparse(), 0) == "reference"


def test_a_change_in_place_is_an_error_and_never_a_wrong_gradient() -> None:
    x = torch.randn(2, 3, requires_grad=True) * 1
    with pytest.raises(RuntimeError, match="view"):
        slices_along(x, 1)[0].mul_(2)
    y = torch.randn(2, 3, requires_grad=True)
    z = y * 1
    slices = slices_along(z, 1)
    z[:, 1] = 5.0
    with pytest.raises(RuntimeError, match="view"):
        (slices[1] * 2).sum().backward()


def first_two(x: Any) -> Any:
    """Return the sum of two slices, of however many there are."""
    slices = slices_along(x, 1)
    return torch.tanh(slices[0]) + slices[1]


def test_graphs_of_a_few_slices_are_not_those_of_one_size() -> None:
    small, large = torch.randn(2, 4, 3), torch.randn(2, 9, 3)
    traced = torch.jit.trace(first_two, (small,))
    assert torch.equal(traced(large), first_two(large))
    sizes: list[Any] = []

    def count(graph: Any, _: Any) -> Any:
        sizes.append(graph)
        return graph

    compiled = torch.compile(first_two, backend=count, fullgraph=True)
    for size in (4, 5, 6, 7):
        x = torch.randn(2, size, 3)
        assert torch.equal(compiled(x), first_two(x))
    assert len(sizes) <= 2


def test_a_step_that_is_a_tensor_keeps_its_dimension() -> None:
    x, offset = torch.randn(2, 5, 3), torch.tensor([1])
    slices = slices_along(x, 1)
    for step in range(4):
        assert torch.equal(slices[step + offset], x[:, step + offset])
        assert torch.equal(slices[step], x[:, step])
