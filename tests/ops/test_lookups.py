"""Test the ops that look up instead of multiplying: one-hot vectors, one position, sorted heads,
diagonals."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from regraft.ops import (  # noqa: E402
    REFERENCES,
    between_diagonals,
    diagonal_matmul,
    diagonals_matmul,
    implementation,
    linear_at,
    matmul_diagonal,
    matmul_diagonals,
    one_hot_matmul,
    one_hot_rows,
    one_hot_select,
    product_diagonal,
    product_trace,
    smoothed_select,
    sorted_head,
    sorted_indices,
)

INFINITY = float("inf")


@pytest.fixture(autouse=True)
def forced_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run kernels for small tensors, too, on the same numbers in every test."""
    monkeypatch.setenv("REGRAFT_KERNELS", "always")
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(4,), (2, 3), ()])
def test_rows_by_one_hot_vectors(shape: tuple[int, ...], dtype: Any) -> None:
    weight = torch.randn(5, 3).to(dtype).requires_grad_()
    index = torch.randint(0, 5, shape)
    assert implementation("one_hot_matmul", index, 5, weight, dtype) == "torch-native"
    ours, theirs = (
        op(index, 5, weight, dtype) for op in (one_hot_matmul, REFERENCES["one_hot_matmul"])
    )
    assert torch.equal(ours, theirs) and ours.dtype == theirs.dtype
    slopes = [torch.autograd.grad((made * made).sum(), weight)[0] for made in (ours, theirs)]
    torch.testing.assert_close(*slopes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(4,), (2, 3), ()])
def test_rows_by_given_one_hot_vectors(shape: tuple[int, ...], dtype: Any) -> None:
    weight = torch.randn(5, 3).to(dtype).requires_grad_()
    vectors = torch.nn.functional.one_hot(torch.randint(0, 5, shape), 5).to(dtype)
    assert implementation("one_hot_rows", vectors, weight) == "torch-native"
    ours, theirs = (op(vectors, weight) for op in (one_hot_rows, REFERENCES["one_hot_rows"]))
    assert torch.equal(ours, theirs) and ours.dtype == theirs.dtype
    vectors.zero_()  # after the call
    slopes = torch.autograd.grad((ours * ours).sum(), weight, create_graph=True)
    (curvature,) = torch.autograd.grad(slopes[0].sum(), weight)
    assert torch.equal(curvature != 0, slopes[0] != 0)
    everywhere = torch.nn.functional.one_hot(torch.tensor([4, 0]), 5).to(dtype).mT[None]
    turned = everywhere.mT.contiguous().mT.mT  # not contiguous
    assert torch.equal(one_hot_rows(turned, weight), turned @ weight)


@pytest.mark.parametrize(
    "vectors",
    [
        [[0.0, 1, 0], [0, 0, 0]],
        [[0.0, 1, 1], [0, 0, 0]],
        [[1.0, 0, 1], [0, 1, 0]],
        [[0.0, -1, 0], [0, 0, 1]],
        [[0.0, 0, 2], [0, 0, 0]],
        [[float("nan"), 0, 0], [0, 0, 1]],
        [[INFINITY, 0, 0], [0, 0, 1]],
        [[-1.0, 0, 0], [0, 0, -1]],
    ],
)
def test_given_vectors_that_are_not_one_hot(vectors: list[list[float]]) -> None:
    hot, weight = torch.tensor(vectors), torch.randn(3, 2)
    assert implementation("one_hot_rows", hot, weight) == "reference"
    torch.testing.assert_close(one_hot_rows(hot, weight), hot @ weight, equal_nan=True)


def test_given_vectors_that_are_left_to_the_composition(monkeypatch: pytest.MonkeyPatch) -> None:
    hot, table = torch.eye(5)[[1, 4]], torch.randn(5, 3)
    arguments: list[tuple[Any, Any]] = [
        (hot.bfloat16(), table.bfloat16()),
        (hot.clone().requires_grad_(), table),
        (hot, table[:, 0]),
        (hot[:0], table),
        (hot, table * INFINITY),
    ]
    for vectors, weight in arguments:
        assert implementation("one_hot_rows", vectors, weight) == "reference"
        made = [op(vectors, weight) for op in (one_hot_rows, REFERENCES["one_hot_rows"])]
        torch.testing.assert_close(*made, equal_nan=True)
    for wrong in (table[:4], table.double()):
        with pytest.raises(RuntimeError):
            one_hot_rows(hot, wrong)
    with torch.autocast("cpu"):
        assert implementation("one_hot_rows", hot, table) == "reference"
    monkeypatch.delenv("REGRAFT_KERNELS")
    assert implementation("one_hot_rows", hot, table) == "reference"


@pytest.mark.parametrize("dtype", [None, torch.float32])
@pytest.mark.parametrize("shape", [(4,), (2, 3), ()])
def test_numbers_by_one_hot_vectors(shape: tuple[int, ...], dtype: Any) -> None:
    values = torch.randn(*shape, 5).requires_grad_()
    index = torch.randint(0, 5, shape)
    assert implementation("one_hot_select", values, index, 5, dtype=dtype) == "torch-native"
    ours, theirs = (
        op(values, index, 5, dtype=dtype) for op in (one_hot_select, REFERENCES["one_hot_select"])
    )
    assert torch.equal(ours, theirs) and ours.dtype == theirs.dtype
    slopes = [torch.autograd.grad((made * made).sum(), values)[0] for made in (ours, theirs)]
    assert torch.equal(*slopes)


def test_numbers_by_one_hot_vectors_that_are_added_up_over_the_second_dimension() -> None:
    for shape, expected in (((4,), "torch-native"), ((5, 5), "reference"), ((), "reference")):
        values, index = torch.randn(*shape, 5), torch.randint(0, 5, shape)
        assert implementation("one_hot_select", values, index, 5, dim=1) == expected
        if shape:
            ours, theirs = (
                op(values, index, 5, dim=1) for op in (one_hot_select, REFERENCES["one_hot_select"])
            )
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("bad", [float("nan"), INFINITY, -INFINITY])
def test_zero_times_what_is_not_finite_is_not_a_number(bad: float) -> None:
    table = torch.randn(5, 3)
    table[4, 1] = bad
    index = torch.tensor([0, 4, 2])
    for op, arguments in (
        (one_hot_matmul, (index, 5, table, torch.float32)),
        (one_hot_select, (table.mT.contiguous(), index, 5)),
        (diagonal_matmul, (torch.ones(5), table)),
        (between_diagonals, (torch.ones(3), table[2:])),
        (matmul_diagonal, (table, torch.ones(3))),
        (diagonals_matmul, (torch.ones(2, 5), table)),
        (matmul_diagonals, (table, torch.ones(2, 3))),
    ):
        name = op.__name__
        assert implementation(name, *arguments) == "reference"
        assert torch.equal(op(*arguments).isnan(), REFERENCES[name](*arguments).isnan())


def test_indices_that_are_no_class_raise_as_before() -> None:
    for index in (torch.tensor([0, 5]), torch.tensor([-1])):
        with pytest.raises(RuntimeError, match="Class values"):
            one_hot_matmul(index, 5, torch.randn(5, 3), torch.float32)
        with pytest.raises(RuntimeError, match="Class values"):
            one_hot_select(torch.randn(len(index), 5), index, 5)
    with pytest.raises(RuntimeError):
        one_hot_matmul(torch.tensor([1]), 4, torch.randn(5, 3), torch.float32)


def test_lookups_that_are_left_to_the_composition(monkeypatch: pytest.MonkeyPatch) -> None:
    index, table = torch.randint(0, 5, (4,)), torch.randn(5, 3)
    for arguments in (
        (index, 5, table, torch.float64),
        (index, 5, table[0], torch.float32),
        (index[:0], 5, table, torch.float32),
        (index.int(), 5, table, torch.float32),
    ):
        assert implementation("one_hot_matmul", *arguments) == "reference"
    assert implementation("one_hot_select", torch.randn(1, 5), index, 5) == "reference"
    mask = torch.rand(4, 1)  # broadcast over the classes
    assert torch.equal(one_hot_select(mask, index, 5), REFERENCES["one_hot_select"](mask, index, 5))
    with torch.autocast("cpu"):
        assert implementation("one_hot_matmul", index, 5, table, torch.float32) == "reference"
    monkeypatch.delenv("REGRAFT_KERNELS")
    assert implementation("one_hot_matmul", index, 5, table, torch.float32) == "reference"


@pytest.mark.parametrize("position", [0, -1, 2])
@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 5, 4)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_at_one_position(shape: tuple[int, ...], position: int, bias: bool) -> None:
    linear, x = nn.Linear(4, 6, bias=bias), torch.randn(shape, requires_grad=True)
    assert implementation("linear_at", x, linear, position) == "torch-native"
    results = [op(x, linear, position) for op in (linear_at, REFERENCES["linear_at"])]
    torch.testing.assert_close(*results)
    leaves = [x, *linear.parameters()]
    slopes = [torch.autograd.grad(made.square().sum(), leaves) for made in results]
    for ours, theirs in zip(*slopes, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_layers_that_see_all_positions() -> None:
    linear, x = nn.Linear(4, 6), torch.randn(2, 3, 4)
    seen: list[Any] = []
    linear.register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    linear_at(x, linear, -1)
    assert seen == [(2, 3, 6)]
    plain = nn.Linear(4, 6)
    assert torch.equal(linear_at(x[0], plain, 1), plain(x[0])[:, 1])  # a feature
    with pytest.raises(IndexError):
        linear_at(x, plain, 3)
    bounded = nn.Sequential(plain, nn.ReLU())
    assert torch.equal(linear_at(x, bounded, 0), bounded(x)[:, 0])


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize(("dim", "axis"), [(0, 0), (1, 1), (-1, 1), (2, -1), (-1, -1), (0, 1)])
def test_the_head_of_a_sorted_tensor(dim: int, axis: int, dtype: Any, descending: bool) -> None:
    x = (torch.randn(8, 9, 10) * 3).to(dtype)  # with ties
    for count in (0, 1, 3, 7, 20, -2):
        ours = sorted_head(x, count, axis, dim=dim, descending=descending)
        theirs = REFERENCES["sorted_head"](x, count, axis, dim=dim, descending=descending)
        assert torch.equal(ours, theirs)


def test_sorted_numbers_that_are_not_finite_and_gradients() -> None:
    x = torch.tensor([[1.0, float("nan"), INFINITY, -INFINITY, 2.0, 0.0, 3.0, float("nan")]])
    for descending in (True, False):
        assert implementation("sorted_head", x, 3, -1, descending=descending) == "torch-native"
        ours, theirs = (
            op(x, 3, -1, descending=descending) for op in (sorted_head, REFERENCES["sorted_head"])
        )
        torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=0, atol=0)
    x.requires_grad_()
    assert implementation("sorted_head", x, 3, -1) == "reference"
    with torch.no_grad():
        assert implementation("sorted_head", x, 3, -1) == "torch-native"


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("kind", ["different", "equal numbers", "all equal", "not finite"])
@pytest.mark.parametrize(("dim", "axis"), [(0, 0), (1, 1), (-1, 1), (2, -1), (-1, -1), (0, 1)])
def test_the_first_indices_of_a_sort(dim: int, axis: int, kind: str, descending: bool) -> None:
    x = torch.randn([4 if size != dim % 3 else 300 for size in range(3)], requires_grad=True)
    with torch.no_grad():
        if kind == "equal numbers":
            x.mul_(40).round_()
        elif kind == "all equal":
            x.zero_()
        elif kind == "not finite":
            x[x > 2] = float("nan")
            x[x < -2] = -INFINITY
    for count in (0, 1, 3, 150, 299, 400, -2):
        ours = sorted_indices(x, count, axis, dim=dim, descending=descending)
        theirs = REFERENCES["sorted_indices"](x, count, axis, dim=dim, descending=descending)
        assert torch.equal(ours, theirs)
        if axis % 3 == dim % 3:
            name = implementation("sorted_indices", x, count, axis, dim=dim, descending=descending)
            assert name == ("torch-native" if 0 < count <= 150 else "reference")
    flat = x.detach().flatten()
    assert torch.equal(
        sorted_indices(flat, 7, 0, descending=descending), flat.argsort(0, descending)[:7]
    )


def test_indices_of_small_whole_or_16_bit_tensors_are_sorted() -> None:
    x = torch.randn(64, 64)
    assert implementation("sorted_indices", x, 3, -1) == "reference"
    x = torch.randn(2, 512)
    assert implementation("sorted_indices", x, 3, -1) == "reference"
    x = torch.randn(64, 512)
    assert implementation("sorted_indices", x, 3, -1) == "torch-native"
    for dtype in (torch.bfloat16, torch.int64):
        assert implementation("sorted_indices", x.to(dtype), 3, -1) == "reference"


@pytest.mark.skipif(
    torch.__version__ < (2, 13), reason="gradients of torch.trace are wrong in some shapes before"
)
@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (3, 5), (5, 3), (1, 1)])
def test_diagonals_of_products(rows: int, columns: int) -> None:
    first = torch.randn(rows, 6, dtype=torch.float64, requires_grad=True)
    second = torch.randn(columns, 6, dtype=torch.float64, requires_grad=True)
    for op in (product_diagonal, product_trace):
        name = op.__name__
        assert implementation(name, first, second.t()) == "torch-native"
        results = [made(first, second.t()) for made in (op, REFERENCES[name])]
        torch.testing.assert_close(*results)
        slopes = [torch.autograd.grad(made.square().sum(), (first, second)) for made in results]
        for ours, theirs in zip(*slopes, strict=True):
            torch.testing.assert_close(ours, theirs)
    by_diag = product_diagonal(first, second.t(), by_diag=True)
    torch.testing.assert_close(by_diag, torch.diag(first @ second.t()))
    with pytest.raises(RuntimeError):
        product_trace(first, second)


def test_diag_of_a_product_that_is_a_vector_is_a_matrix() -> None:
    matrix, vector = torch.randn(4, 3), torch.randn(3)
    assert implementation("product_diagonal", matrix, vector, by_diag=True) == "reference"
    assert torch.equal(product_diagonal(matrix, vector, by_diag=True), torch.diag(matrix @ vector))
    with pytest.raises(RuntimeError):
        product_diagonal(torch.randn(2, 4, 3), torch.randn(2, 3, 4), by_diag=True)


def test_products_with_diagonal_matrices() -> None:
    scales, matrix = (
        torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((4,), (4, 4))
    )
    for op, arguments in (
        (diagonal_matmul, (scales, matrix[:, :3])),
        (between_diagonals, (scales, matrix)),
        (matmul_diagonal, (matrix[:3], scales)),
    ):
        name = op.__name__
        assert implementation(name, *arguments) == "torch-native"
        results = [made(*arguments) for made in (op, REFERENCES[name])]
        torch.testing.assert_close(*results)
        slopes = [torch.autograd.grad(made.square().sum(), (scales, matrix)) for made in results]
        for ours, theirs in zip(*slopes, strict=True):
            torch.testing.assert_close(ours, theirs)
    # `diag` of a matrix is its diagonal
    assert diagonal_matmul(matrix, matrix).shape == (4,)


@pytest.mark.parametrize(
    ("batch", "other"), [((2,), (2,)), ((2, 3), (2, 3)), ((), (3,)), ((2, 1), (3,)), ((3,), ())]
)
def test_batches_of_diagonal_matrices(batch: tuple[int, ...], other: tuple[int, ...]) -> None:
    scales = torch.randn(*batch, 4, requires_grad=True)
    rows = torch.randn(*other, 5, 4, dtype=torch.float64, requires_grad=True)
    for op, arguments in (
        (diagonals_matmul, (scales, rows.mT)),
        (matmul_diagonals, (rows, scales)),
    ):
        name = op.__name__
        assert implementation(name, *arguments, dtype=torch.float64) == "torch-native"
        results = [made(*arguments, dtype=torch.float64) for made in (op, REFERENCES[name])]
        torch.testing.assert_close(*results)
        assert results[0].stride() == results[1].stride()
        slopes = [torch.autograd.grad(made.square().sum(), (scales, rows)) for made in results]
        for ours, theirs in zip(*slopes, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_batches_of_diagonal_matrices_that_run_as_the_composition() -> None:
    scales, rows = torch.randn(2, 4), torch.randn(2, 4, 5)
    large = torch.full((2, 4), 1e300, dtype=torch.float64)  # infinite in float32
    for arguments, dtype in (
        ((scales[0], rows[0, :, 0]), None),
        ((scales.bfloat16(), rows.bfloat16()), None),
        ((large, rows), torch.float32),
    ):
        assert implementation("diagonals_matmul", *arguments, dtype=dtype) == "reference"
        results = [
            made(*arguments, dtype=dtype)
            for made in (diagonals_matmul, REFERENCES["diagonals_matmul"])
        ]
        torch.testing.assert_close(*results, equal_nan=True)
    for arguments in ((scales, rows[:, :3]), (torch.randn(3, 4), rows), (rows[0, 0, 0], rows)):
        messages = []
        for made in (diagonals_matmul, REFERENCES["diagonals_matmul"]):
            with pytest.raises((IndexError, RuntimeError)) as caught:
                made(*arguments)
            messages.append(str(caught.value))
        assert messages[0] == messages[1]


def test_a_product_between_diagonals_that_overflows_on_the_way() -> None:
    scales, matrix = torch.tensor([1e30, 1e-30, 1.0]), torch.full((3, 3), 1e20)
    ours, theirs = (
        op(scales, matrix) for op in (between_diagonals, REFERENCES["between_diagonals"])
    )
    assert theirs.isnan().any()
    assert torch.equal(ours.isnan(), theirs.isnan()) and torch.equal(ours.isinf(), theirs.isinf())
    for wrong in (torch.randn(3, 4), torch.randn(2, 3)):
        with pytest.raises(RuntimeError):
            between_diagonals(scales, wrong)


SMOOTHINGS: list[dict[str, Any]] = [
    {"scale": 0.9, "offset": 0.02},
    {"scale": 0.9, "spread": 0.1, "count": 4},
    {},
    {"scale": 2, "offset": 1},
    {"scale": 1.0, "offset": -0.3, "spread": 0.2},
]


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_with_smoothed_vectors(dtype: Any, smoothing: dict[str, Any]) -> None:
    values = torch.randn(4, 5, dtype=dtype, requires_grad=True)
    index = torch.randint(0, 5, (4,))
    for arguments, vectors in (
        ((values, index, -1), {"classes": 5, "dtype": dtype}),
        ((values, index[:, None], 1), {"like": values}),
        ((values, index[:, None], -1), {"like": torch.randn(4, 5, dtype=dtype)}),
    ):
        options = {**vectors, **smoothing}
        assert implementation("smoothed_select", *arguments, **options) == "torch-native"
        results = [
            op(*arguments, **options) for op in (smoothed_select, REFERENCES["smoothed_select"])
        ]
        torch.testing.assert_close(*results)
        slopes = [torch.autograd.grad(made.square().sum(), values)[0] for made in results]
        torch.testing.assert_close(*slopes)
    many = torch.randn(2, 3, 5), torch.randint(0, 5, (2, 3)), 2
    options = {"classes": 5, **smoothing}
    assert implementation("smoothed_select", *many, **options) == "torch-native"
    torch.testing.assert_close(
        smoothed_select(*many, **options), REFERENCES["smoothed_select"](*many, **options)
    )


def result_or_error(op: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return the result of a call, or the text of the error that it raises."""
    try:
        return op(*arguments, **options)
    except RuntimeError as error:
        return str(error)


HUGE = torch.tensor([[3e38, 3e38, 0.0], [-3e38, -3e38, 0.0]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64])
@pytest.mark.parametrize(
    "smoothing",
    [{"scale": 1.0, "offset": 0.0}, {"scale": 1.0, "spread": 0.0, "count": 4}, {"scale": 1.0}],
)
def test_dtype_of_vectors_that_are_not_smoothed(dtype: Any, smoothing: dict[str, Any]) -> None:
    index, values = torch.tensor([0, 2]), torch.arange(10).view(2, 5).to(dtype)
    weights = torch.nn.functional.one_hot(index, 5) * 1.0
    chosen = smoothed_select(values, index, -1, classes=5, **smoothing)
    torch.testing.assert_close(chosen, (weights * values).sum(-1))


def test_smoothed_vectors_that_are_left_to_the_composition(monkeypatch: pytest.MonkeyPatch) -> None:
    index, values = torch.tensor([0, 4, 2]), torch.randn(3, 5)
    column, smooth = index[:, None], {"scale": 0.9, "offset": 0.02}
    infinite = values.index_fill(1, torch.tensor([1]), -INFINITY)
    images, classes = torch.randn(2, 5, 3, 3), torch.randint(0, 5, (2, 1, 3, 3))
    cases: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
        ((infinite, column, 1), {"like": values, **smooth}),
        ((infinite, column, 1), {"like": values}),
        ((infinite, index, -1), {"classes": 5, "scale": 0.9, "spread": 0.0, "offset": 0.0}),
        ((values, column, 0), {"like": values, **smooth}),
        ((values, column[:2], 1), {"like": values, **smooth}),
        ((values, index[:, None].expand(3, 2), 1), {"like": values, **smooth}),
        ((values.double(), column, 1), {"like": values, **smooth}),
        ((values.bfloat16(), column, 1), {"like": values.bfloat16(), **smooth}),
        ((values, column, 1), {"like": values, "scale": torch.rand(5), "offset": 0.1}),
        ((values, index, -1), {"classes": 6, "dtype": torch.float64, "scale": 0.5}),
        ((images, classes, 1), {"like": images, **smooth}),
        ((values, index, -1), {"classes": 5, "dtype": torch.bfloat16, **smooth}),
        ((values[:0], column[:0], 1), {"like": values[:0], **smooth}),
        ((values, index, -1), {"classes": 5, "scale": INFINITY, "offset": 0.0}),
        ((values, index, -1), {"classes": 5, "scale": 0.9, "offset": INFINITY}),
        ((values, index, -1), {"classes": 5, "scale": 1e39, "offset": 0.0}),
        ((values, index, -1), {"classes": 5, "scale": 0.9, "spread": 0.1, "count": 1e-300}),
        # 0 / 0 for the other classes, though there is nothing to spread
        ((values, index, -1), {"classes": 5, "scale": 1.0, "spread": 0.0, "count": 0}),
        # sums of rows that overflow, and cancel each other
        ((HUGE, torch.tensor([0, 1]), -1), {"classes": 3, "scale": 0.9, "offset": 0.03}),
    )
    for arguments, options in cases:
        assert implementation("smoothed_select", *arguments, **options) == "reference"
        ours, theirs = (
            result_or_error(op, arguments, options)
            for op in (smoothed_select, REFERENCES["smoothed_select"])
        )
        if isinstance(theirs, str):
            assert ours == theirs
        else:
            assert ours.dtype is theirs.dtype
            torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=0, atol=0)
    for wrong in (torch.tensor([0, 5, 1]), torch.tensor([0, -1, 1])):
        with pytest.raises(RuntimeError):
            smoothed_select(values, wrong, -1, classes=5, **smooth)
        with pytest.raises(RuntimeError, match="out of bounds"):
            smoothed_select(values, wrong[:, None], 1, like=values, **smooth)
    monkeypatch.delenv("REGRAFT_KERNELS")
    assert implementation("smoothed_select", values, column, 1, like=values) == "reference"


def test_an_index_that_changes_before_the_backward_pass() -> None:
    cases: tuple[tuple[Any, tuple[int, int]], ...] = (
        (lambda table, index: one_hot_select(table, index, 5), (3, 5)),
        (lambda table, index: one_hot_matmul(index, 5, table, torch.float32), (5, 2)),
        (lambda table, index: smoothed_select(table, index, -1, classes=5, scale=0.9), (3, 5)),
        (lambda table, index: smoothed_select(table, index[:, None], 1, like=table), (3, 5)),
    )
    for call, shape in cases:
        slopes = []
        for replacement in (None, 0):
            table, index = torch.ones(shape, requires_grad=True), torch.tensor([1, 4, 2])
            result = call(table, index)
            if replacement is not None:
                index.fill_(replacement)
            slopes.append(torch.autograd.grad(result.sum(), table)[0])
        assert torch.equal(*slopes)
