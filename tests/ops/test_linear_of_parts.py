"""Test Linear layers of concatenated parts against the concatenation: results, gradients, second
derivatives, numbers that are not finite, changes in place, exclusions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from regraft.ops import (  # noqa: E402
    expanded_part,
    implementation,
    interleaved_part,
    interleaved_rows_part,
    linear_of_parts,
    repeated_part,
    rows_part,
)
from regraft.ops.enlarged_parts import EnlargedPart  # noqa: E402

Leaves = tuple[Any, ...]
INDEX = torch.tensor([2, 0, 0, 1, 2, 2, 1])
# the leaves' shapes, and the parts as the source and as the rule write them
LAYOUTS: dict[str, tuple[tuple[tuple[int, ...], ...], Callable[..., Any], Callable[..., Any]]] = {
    "repeated beside all positions": (
        ((3, 4), (3, 5, 2)),
        lambda h, e: [h.unsqueeze(1).repeat(1, 5, 1), e],
        lambda h, e: [repeated_part(h.unsqueeze(1), (1, 5, 1)), e],
    ),
    "all pairs": (
        ((2, 5, 3),),
        lambda x: [x.unsqueeze(2).expand(2, 5, 5, 3), x.unsqueeze(1).expand(-1, 5, -1, -1)],
        lambda x: [
            expanded_part(x.unsqueeze(2), (2, 5, 5, 3)),
            expanded_part(x.unsqueeze(1), (-1, 5, -1, -1)),
        ],
    ),
    "rows of an index": (
        ((3, 4), (3, 2), (7, 1)),
        lambda h, g, e: [h[INDEX], g.index_select(0, INDEX), e],
        lambda h, g, e: [rows_part(h, INDEX), rows_part(g, INDEX, wraps=False), e],
    ),
    "rows of a matrix of indices": (
        ((3, 4), (2, 7, 1)),
        lambda h, e: [h[torch.stack((INDEX, INDEX))], e],
        lambda h, e: [rows_part(h, torch.stack((INDEX, INDEX))), e],
    ),
    "all pairs of rows": (
        ((4, 3),),
        lambda h: [h.repeat_interleave(4, dim=0), h.repeat(4, 1)],
        lambda h: [interleaved_part(h, 4, 0), repeated_part(h, (4, 1))],
    ),
    "all pairs of rows, by columns": (
        ((4, 3),),
        lambda h: [h.repeat(1, 4).view(16, -1), h.repeat(4, 1)],
        lambda h: [interleaved_rows_part(h, 4, 16, -1), repeated_part(h, (4, 1))],
    ),
    "as many copies as a tensor says": (
        ((3, 4), (6, 2)),
        lambda h, e: [h.repeat_interleave(torch.tensor([1, 3, 2]), dim=0), e],
        lambda h, e: [interleaved_part(h, torch.tensor([1, 3, 2]), 0), e],
    ),
    "one position several times": (
        ((3, 1, 4), (3, 5, 2)),
        lambda h, e: [h.repeat_interleave(5, 1), e],
        lambda h, e: [interleaved_part(h, 5, 1), e],
    ),
    "a further dimension": (
        ((5, 3), (2, 5, 3)),
        lambda h, e: [e, h.expand(2, -1, -1)],
        lambda h, e: [e, expanded_part(h, (2, -1, -1))],
    ),
    "enlarged alone, in two ways": (
        ((1, 4), (6, 1, 2)),
        lambda a, b: [a.expand(6, 5, 4), b.expand(6, 5, 2)],
        lambda a, b: [expanded_part(a, (6, 5, 4)), expanded_part(b, (6, 5, 2))],
    ),
    "a vector in every row": (
        ((4,), (5, 2)),
        lambda h, e: [h.expand(5, -1), e],
        lambda h, e: [expanded_part(h, (5, -1)), e],
    ),
    "between others": (
        ((3, 5, 2), (3, 1, 4), (3, 5, 1), (3, 5, 3)),
        lambda a, h, b, c: [a, h.expand(3, 5, 4), b, c],
        lambda a, h, b, c: [a, expanded_part(h, (3, 5, 4)), b, c],
    ),
}


@pytest.fixture(autouse=True)
def forced_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run kernels for small tensors, too, on the same numbers in every test."""
    monkeypatch.setenv("REGRAFT_KERNELS", "always")
    torch.manual_seed(0)


def layer_for(parts: Any, **options: Any) -> Any:
    """Return a Linear layer, in float64, of the width of the parts' concatenation."""
    return nn.Linear(sum(part.shape[-1] for part in parts), 3, dtype=torch.float64, **options)


def weighted(tensor: Any) -> Any:
    """Return a sum of squares in which every number has another weight."""
    weights = torch.linspace(-1, 1, tensor.numel(), dtype=tensor.dtype)
    return (tensor.square() * weights.reshape(tensor.shape)).sum()


def derivatives(call: Callable[[], Any], leaves: Leaves) -> Leaves:
    """Return a result, its gradients, and gradients of these."""
    result = call()
    first = torch.autograd.grad(weighted(result), leaves, create_graph=True)
    second = torch.autograd.grad(sum(map(weighted, first)), leaves)
    return result, *first, *second


def composition(parts: Any, layer: Any) -> Any:
    return layer(torch.cat(parts, -1))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", LAYOUTS)
def test_results_and_both_derivatives(name: str, bias: bool) -> None:
    shapes, source, target = LAYOUTS[name]
    leaves = tuple(torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    layer = layer_for(source(*leaves), bias=bias)
    wanted = (*leaves, *layer.parameters())
    assert implementation("linear_of_parts", target(*leaves), layer) == "small-products"
    ours = derivatives(lambda: linear_of_parts(target(*leaves), layer), wanted)
    theirs = derivatives(lambda: composition(source(*leaves), layer), wanted)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)
    assert ours[0].is_contiguous() and not ours[0]._is_view()
    with torch.no_grad():
        result = linear_of_parts(target(*leaves), layer)
        assert result.is_contiguous() and not result._is_view()
        result += 1  # shares its memory with nothing
        torch.testing.assert_close(linear_of_parts(target(*leaves), layer), ours[0])


@pytest.mark.parametrize("shape", [None, (4, -1, 6), (2, 2, 4, 6)])
def test_a_matrix_instead_of_a_layer(shape: Any) -> None:
    h = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    matrix = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    options = {"matrix": matrix, "shape": shape}

    def source() -> Any:
        pairs = torch.cat([h.repeat(1, 4).view(16, -1), h.repeat(4, 1)], 1)
        return (pairs if shape is None else pairs.view(shape)) @ matrix

    def parts() -> Any:
        return [interleaved_rows_part(h, 4, 16, -1), repeated_part(h, (4, 1))]

    assert implementation("linear_of_parts", parts(), None, 1, **options) == "small-products"
    ours = derivatives(lambda: linear_of_parts(parts(), None, 1, **options), (h, matrix))
    for mine, other in zip(ours, derivatives(source, (h, matrix)), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)
    assert ours[0].is_contiguous() and not ours[0]._is_view()


def test_matrices_that_are_left_to_the_composition() -> None:
    h = torch.randn(4, 3)
    parts = [interleaved_rows_part(h, 4, 16, -1), repeated_part(h, (4, 1))]
    joined = torch.cat([h.repeat_interleave(4, 0), h.repeat(4, 1)], 1)
    for matrix, shape in (
        (torch.randn(6), None),
        (torch.randn(5, 6, 2), None),
        (torch.randn(12, 2), (8, 12)),
        (torch.randn(6, 2), (16, -1)),
        (torch.randn(6, 2), [16, 6]),
    ):
        options = {"matrix": matrix, "shape": shape}
        assert implementation("linear_of_parts", parts, None, 1, **options) == "reference"
        expected = (joined if shape is None else joined.view(shape)) @ matrix
        torch.testing.assert_close(linear_of_parts(parts, None, 1, **options), expected)
    with pytest.raises(RuntimeError):
        linear_of_parts(parts, None, 1, matrix=torch.randn(7, 2))
    with pytest.raises(RuntimeError):
        linear_of_parts(parts, None, 1, matrix=torch.randn(6, 2), shape=(3, -1, 6))


@pytest.mark.parametrize("shape", [(-1, 8), (4, 5, 2, 8)])
def test_rows_that_are_viewed_before_a_layer(shape: tuple[int, ...]) -> None:
    results = []
    for is_ours in (True, False):
        torch.manual_seed(0)
        norm = [nn.BatchNorm1d(6)] if len(shape) == 2 else []
        layer = nn.Sequential(nn.Linear(8, 6), *norm, nn.ReLU()).double()
        x = torch.randn(4, 10, 4, dtype=torch.float64, requires_grad=True)
        y = torch.randn(4, 1, 4, dtype=torch.float64, requires_grad=True)
        if is_ours:
            parts = [x, repeated_part(y, (1, 10, 1))]
            assert implementation("linear_of_parts", parts, layer, 2, shape=shape) != "reference"
            result = linear_of_parts(parts, layer, 2, shape=shape)
        else:
            result = layer(torch.cat([x, y.repeat(1, 10, 1)], 2).view(shape))
        slopes = torch.autograd.grad(result.square().sum(), (x, y, *layer.parameters()))
        results.append((result, *slopes))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)
    parts = [torch.randn(4, 10, 4), repeated_part(torch.randn(4, 1, 4), (1, 10, 1))]
    other = nn.Linear(16, 3)  # takes two rows at once
    assert implementation("linear_of_parts", parts, other, 2, shape=(-1, 16)) == "reference"
    assert linear_of_parts(parts, other, 2, shape=(-1, 16)).shape == (20, 3)
    with pytest.raises(RuntimeError):
        linear_of_parts(parts, nn.Linear(8, 6), 2, shape=(3, -1, 8))


@pytest.mark.parametrize("name", LAYOUTS)
def test_only_some_need_gradients(name: str) -> None:
    shapes, source, target = LAYOUTS[name]
    leaves = tuple(torch.randn(shape, dtype=torch.float64) for shape in shapes)
    leaves[0].requires_grad_()
    layer = layer_for(source(*leaves)).requires_grad_(False)
    ours, theirs = linear_of_parts(target(*leaves), layer), composition(source(*leaves), layer)
    torch.testing.assert_close(
        torch.autograd.grad(weighted(ours), leaves[0]),
        torch.autograd.grad(weighted(theirs), leaves[0]),
    )


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", LAYOUTS)
def test_numbers_that_are_not_finite(name: str, bad: float) -> None:
    shapes, source, target = LAYOUTS[name]
    leaves = tuple(torch.randn(shape, dtype=torch.float64) for shape in shapes)
    leaves[0].view(-1)[1] = bad
    layer = layer_for(source(*leaves))
    ours, theirs = linear_of_parts(target(*leaves), layer), composition(source(*leaves), layer)
    torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_a_sequential_is_called_from_its_second_module_on() -> None:
    x, e = torch.randn(3, 1, 4, requires_grad=True), torch.randn(3, 5, 2)
    mlp = nn.Sequential(nn.Linear(6, 5), nn.SiLU(), nn.Linear(5, 2))
    seen: list[Any] = []
    mlp[1].register_forward_hook(lambda *_: seen.append(1))
    assert implementation("linear_of_parts", [expanded_part(x, (3, 5, 4)), e], mlp) != "reference"
    ours = linear_of_parts([expanded_part(x, (3, 5, 4)), e], mlp)
    torch.testing.assert_close(ours, composition([x.expand(3, 5, 4), e], mlp))
    assert seen == [1, 1]
    for hooked in (mlp[0], mlp):
        handle = hooked.register_forward_hook(lambda *_: torch.zeros(1))
        part = expanded_part(x, (3, 5, 4))
        assert implementation("linear_of_parts", [part, e], mlp) == "reference"
        if hooked is mlp:
            assert torch.equal(linear_of_parts([part, e], mlp), torch.zeros(1))
        handle.remove()
    assert implementation("linear_of_parts", [part, e], nn.Sequential(mlp)) == "reference"
    nested = linear_of_parts([part, e], nn.Sequential(mlp))
    torch.testing.assert_close(nested, ours)


def test_gradients_are_those_of_the_mode_in_which_a_part_was_made() -> None:
    h, e = torch.randn(3, 4, requires_grad=True), torch.randn(7, 2, requires_grad=True)
    layer = nn.Linear(6, 3)
    with torch.no_grad():
        part = rows_part(h, INDEX)
    slopes = torch.autograd.grad(linear_of_parts([part, e], layer).sum(), (h, e), allow_unused=True)
    assert slopes[0] is None and slopes[1] is not None


def test_a_change_in_place_in_between_is_an_error_or_seen() -> None:
    layer, e = nn.Linear(6, 3), torch.randn(3, 5, 2)
    x = torch.randn(3, 1, 4)
    view, copy = expanded_part(x, (3, 5, 4)), repeated_part(x, (1, 5, 1))
    x.add_(1)
    torch.testing.assert_close(
        linear_of_parts([view, e], layer), composition([x.expand(3, 5, 4), e], layer)
    )
    with pytest.raises(RuntimeError, match="changed in place"):
        linear_of_parts([copy, e], layer)
    h, index = torch.randn(3, 4), INDEX.clone()
    part = rows_part(h, index)
    index[0] = 1
    with pytest.raises(RuntimeError, match="changed in place"):
        linear_of_parts([part, torch.randn(7, 2)], layer)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_change_in_place_after_the_layer_leaves_its_gradients(name: str) -> None:
    shapes, source, target = LAYOUTS[name]
    slopes = []
    for call, parts_of in ((linear_of_parts, target), (composition, source)):
        torch.manual_seed(0)
        leaves = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
        tensors = [leaf * 1 for leaf in leaves]
        layer = layer_for(source(*leaves))
        result = call(parts_of(*tensors), layer)
        for number, tensor in enumerate(tensors):
            (tensor if number else tensor.data).zero_()
        slopes.append(torch.autograd.grad(weighted(result), (*leaves, *layer.parameters())))
    torch.testing.assert_close(*slopes)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_rows_that_no_index_names(bad: float) -> None:
    h, e, layer = torch.randn(5, 4), torch.randn(7, 2), nn.Linear(6, 3)
    h[4] = bad
    loss = weighted(linear_of_parts([rows_part(h, INDEX), e], layer))
    expected = weighted(composition([h[INDEX], e], layer))
    ours = torch.autograd.grad(loss, list(layer.parameters()))
    torch.testing.assert_close(ours, torch.autograd.grad(expected, list(layer.parameters())))
    layer.requires_grad_(False)
    assert implementation("linear_of_parts", [rows_part(h, INDEX), e], layer) != "reference"


def test_weights_of_other_shapes_that_were_assigned_to_a_layer() -> None:
    x, e = torch.randn(3, 1, 4), torch.randn(3, 5, 2)
    for shape, bias in (((1, 6), 1), ((5, 6), 5), ((3, 6), 1), ((6,), None)):
        layer = nn.Linear(6, 3)
        layer.weight = nn.Parameter(torch.randn(shape))
        layer.bias = None if bias is None else nn.Parameter(torch.randn(bias))
        ours = linear_of_parts([expanded_part(x, (3, 5, 4)), e], layer)
        torch.testing.assert_close(ours, composition([x.expand(3, 5, 4), e], layer))


def test_another_default_device() -> None:
    h, layer = torch.randn(4, 3), nn.Linear(6, 3)
    with torch.device("meta"):
        for left in (interleaved_part(h, 4, 0), interleaved_rows_part(h, 4, 16, -1)):
            ours = linear_of_parts([left, repeated_part(h, (4, 1))], layer)
            joined = [h.unsqueeze(1).expand(4, 4, 3).reshape(16, 3), h.repeat(4, 1)]
            torch.testing.assert_close(ours, composition(joined, layer))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_number_formats(dtype: Any) -> None:
    x, e = torch.randn(3, 1, 4, dtype=dtype), torch.randn(3, 5, 2, dtype=dtype)
    layer = nn.Linear(6, 3, dtype=dtype)
    ours = linear_of_parts([expanded_part(x, (3, 5, 4)), e], layer)
    expected = composition([x.expand(3, 5, 4), e], layer)
    torch.testing.assert_close(ours, expected)
    if dtype is not torch.float32:
        assert torch.equal(ours, expected)


def test_what_is_left_to_the_composition(monkeypatch: pytest.MonkeyPatch) -> None:
    x, e, layer = torch.randn(3, 1, 4), torch.randn(3, 5, 2), nn.Linear(6, 3)
    part = expanded_part(x, (3, 5, 4))
    narrowed = type("Narrow", (nn.Linear,), {})(6, 3)
    parametrised = nn.utils.parametrizations.weight_norm(nn.Linear(6, 3))
    excluded = (
        ([x.expand(3, 5, 4).contiguous(), e], layer, -1),
        ([part, e.double()], layer, -1),
        ([part, e.long()], layer, -1),
        ([part, e], layer.double(), -1),
        ([part, e], nn.Linear(7, 3), -1),
        ([part, e], nn.Linear(6, 3), 1),
        ([part, e], narrowed, -1),
        ([part, e], parametrised, -1),
        ([part, e], torch.relu, -1),
        ([part, e, torch.empty(0)], nn.Linear(6, 3), -1),
        ([part, e, torch.empty(3, 5, 0)], nn.Linear(6, 3), -1),
        ([expanded_part(x, (3, 4, 4)), e], nn.Linear(6, 3), -1),
    )
    for parts, each, dim in excluded:
        assert implementation("linear_of_parts", parts, each, dim) == "reference", (each, dim)
    layer = layer.float()
    ours = linear_of_parts([part, e, torch.empty(0)], layer, 2)
    torch.testing.assert_close(ours, composition([x.expand(3, 5, 4), e], layer))
    with torch.autocast("cpu"):
        assert implementation("linear_of_parts", [part, e], layer) == "reference"
    with pytest.raises(RuntimeError):
        linear_of_parts([expanded_part(x, (3, 4, 4)), e], layer)
    monkeypatch.delenv("REGRAFT_KERNELS")
    assert implementation("linear_of_parts", [part, e], layer) == "reference"
    wide = nn.Linear(192, 128)
    parts = [expanded_part(torch.randn(8, 1, 128), (8, 64, 128)), torch.randn(8, 64, 64)]
    assert implementation("linear_of_parts", parts, wide) == "small-products"


def test_a_view_that_needs_no_gradient_is_seen_by_its_strides() -> None:
    x, e, layer = torch.randn(3, 1, 4), torch.randn(3, 5, 2), nn.Linear(6, 3)
    assert implementation("linear_of_parts", [x.expand(3, 5, 4), e], layer) == "small-products"
    torch.testing.assert_close(
        linear_of_parts([x.expand(3, 5, 4), e], layer), composition([x.expand(3, 5, 4), e], layer)
    )
    x.requires_grad_()
    assert implementation("linear_of_parts", [x.expand(3, 5, 4), e], layer) == "reference"
    with torch.no_grad():
        assert implementation("linear_of_parts", [x.expand(3, 5, 4), e], layer) != "reference"


def test_what_is_no_part_is_the_tensor() -> None:
    x = torch.randn(3, 4)
    for tensor, expected in (
        (rows_part(x, 1), x[1]),
        (rows_part(x, torch.tensor([0, -1])), x[[0, -1]]),
        (rows_part(x, torch.tensor([True, False, True])), x[[0, 2]]),
        (rows_part(x, slice(1, 3)), x[1:3]),
        (rows_part(x, (0, 2), whole=True), x[[0, 2]]),
        (rows_part(x[0], torch.tensor(3).numpy()), x[0, 3]),
        (repeated_part(x[0], torch.tensor(2)), x[0].repeat(2)),
        (expanded_part(x[0, 0], torch.tensor(3)), x[0, 0].expand(3)),
        (rows_part(x[0], torch.tensor([0, 1])), x[0, :2]),
        (repeated_part(x, (2, 3)), x.repeat(2, 3)),
        (repeated_part(x, (2, 1, 3)), x.repeat(2, 1, 3)),
        (interleaved_part(x, 2, 1), x.repeat_interleave(2, 1)),
        (interleaved_part(x, 0, 0), x[:0]),
        (interleaved_part(x, 2, None), x.repeat_interleave(2)),
        (interleaved_rows_part(x, 2, 3, 8), x.repeat(1, 2)),
        (interleaved_rows_part(x[:, :0], 2, 3, 0), x[:, :0]),
        (expanded_part(x[:, :1], (3, 4)), x[:, :1].expand(3, 4)),
        (expanded_part(torch.tensor(2.0), (3,)), torch.full((3,), 2.0)),
    ):
        assert torch.equal(tensor, expected)
    assert rows_part([x, x], 1) is x
    assert rows_part({"a": x}, "a") is x


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: rows_part(x, torch.tensor([3])), IndexError),
        (lambda x: rows_part(x, torch.tensor([-1]), wraps=False), (IndexError, RuntimeError)),
        (lambda x: rows_part(x, INDEX.reshape(1, 7), wraps=False), (IndexError, RuntimeError)),
        (lambda x: rows_part(x, x > 0, whole=True), IndexError),
        (lambda x: expanded_part(x, range(3, 5)), TypeError),
        (lambda x: expanded_part(x, (2, 4)), RuntimeError),
        (lambda x: expanded_part(x, (4,)), RuntimeError),
        (lambda x: repeated_part(x, (2,)), RuntimeError),
        (lambda x: repeated_part(x, (1, -1)), RuntimeError),
        (lambda x: interleaved_part(x, -1, 0), RuntimeError),
    ],
)
def test_errors_are_those_of_pytorch(call: Callable[[Any], Any], error: Any) -> None:
    with pytest.raises(error):
        call(torch.randn(3, 4))


def test_parts_are_tensors_under_transformations() -> None:
    x, e, layer = torch.randn(6, 1, 4), torch.randn(6, 5, 2), nn.Linear(6, 3)

    def call(h: Any, other: Any) -> Any:
        part = expanded_part(h, (5, 4))
        assert not isinstance(part, EnlargedPart)
        return linear_of_parts([part, other], layer)

    expected = composition([x.expand(6, 5, 4), e], layer)
    torch.testing.assert_close(torch.func.vmap(call)(x, e), expected)


def test_the_result_is_no_larger_than_that_of_the_composition() -> None:
    part = rows_part(torch.randn(3, 4), INDEX)
    wide = [part, torch.randn(7, 2)]
    assert implementation("linear_of_parts", wide, nn.Linear(6, 60)) == "reference"
    assert implementation("linear_of_parts", wide, nn.Linear(6, 6)) == "small-products"
