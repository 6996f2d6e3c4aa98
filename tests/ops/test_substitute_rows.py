"""Test substitution by triangular solves against rows one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from regraft.ops import REFERENCES, implementation, substitute_rows  # noqa: E402

reference = REFERENCES["substitute_rows"]
SHAPES = ((2, 3, 9, 9), (5, 5), (2, 12, 9), (3, 9, 11), (1, 8, 8), (4, 1, 1))


@pytest.fixture(autouse=True)
def forced_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run kernels for small matrices, too."""
    monkeypatch.setenv("REGRAFT_KERNELS", "always")


def matrices(*shape: int, dtype: Any = torch.float32, is_below: bool = False) -> Any:
    """Return matrices, perhaps with zeros where nothing is substituted."""
    torch.manual_seed(len(shape))
    x = torch.randn(*shape, dtype=dtype) / 2
    return (x.tril(-1) if is_below else x).requires_grad_()


def run(op: Any, x: Any, size: int, **options: bool) -> tuple[Any, ...]:
    """Return results in both modes, and first and second derivatives."""
    changed = x * 1
    assert op(changed, size, **options) is changed
    slope = torch.linspace(-1, 2, x.numel(), dtype=x.dtype).view(x.shape)
    (first,) = torch.autograd.grad((changed * slope).square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x)
    with torch.no_grad():
        other = x * 1
        op(other, size, **options)
    return changed, other, first, second


@pytest.mark.parametrize("is_below", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_results_and_derivatives(shape: tuple[int, ...], dtype: Any, is_below: bool) -> None:
    x = matrices(*shape, dtype=dtype, is_below=is_below)
    for size in {1, 2, min(shape[-2:])}:
        if size <= min(shape[-2:]):
            assert implementation("substitute_rows", x * 1, size) == "torch-native"
            for left, right in zip(
                run(substitute_rows, x, size), run(reference, x, size), strict=True
            ):
                torch.testing.assert_close(left, right, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("is_below", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 9, 9), (5, 5), (4, 1, 1)], ids=str)
def test_products_with_all_rows(shape: tuple[int, ...], is_below: bool) -> None:
    x = matrices(*shape, dtype=torch.float64, is_below=is_below)
    size = shape[-1]
    assert implementation("substitute_rows", x * 1, size, all_rows=True) == "torch-native"
    for left, right in zip(
        run(substitute_rows, x, size, all_rows=True),
        run(reference, x, size, all_rows=True),
        strict=True,
    ):
        torch.testing.assert_close(left, right)
    changed = x.detach().clone()
    for i in range(1, size):
        products = changed[..., i, :, None].clone() * changed[..., :, :i].clone()
        changed[..., i, :i] = changed[..., i, :i] + products.sum(-2)
    torch.testing.assert_close(substitute_rows(x.detach().clone(), size, all_rows=True), changed)


def test_products_with_all_rows_of_other_matrices() -> None:
    for shape, size in (((2, 9, 9), 5), ((9, 12), 9), ((1, 1, 9), 1)):
        x = matrices(*shape).detach()
        assert implementation("substitute_rows", x, size, all_rows=True) == "reference"
    x = matrices(2, 9, 9).detach()
    expected = reference(x.clone(), 5, all_rows=True)
    assert torch.equal(substitute_rows(x.clone(), 5, all_rows=True), expected)
    uneven = matrices(9, 12).detach()
    messages = []
    for op in (substitute_rows, reference):
        with pytest.raises(RuntimeError) as caught:
            op(uneven, 9, all_rows=True)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_everything_that_is_not_below_the_diagonal_stays() -> None:
    x = matrices(2, 9, 9).detach()
    x[:, 3, 8], x[:, 8, 8] = -0.0, float("nan")  # no row meets the last column
    changed = substitute_rows(x.clone(), 9)
    is_above = torch.ones(9, 9, dtype=torch.bool).triu()
    bits = [tensor[:, is_above].view(torch.int32) for tensor in (x, changed)]
    assert torch.equal(*bits)
    assert changed.tril(-1).isfinite().all()


def test_views_and_their_bases() -> None:
    views: tuple[Callable[[Any], Any], ...] = (
        lambda base: base[0],
        lambda base: base[:, 1:],
        lambda base: base.mT,
        lambda base: base[..., ::2, ::2],
    )
    for view in views:
        runs = []
        for op in (substitute_rows, reference):
            base = matrices(2, 9, 9).detach().clone().requires_grad_()
            changed = base * 1
            op(view(changed), 5)
            (grad,) = torch.autograd.grad(changed.square().sum(), base)
            runs.append((changed.detach(), grad))
        for left, right in zip(*runs, strict=True):
            torch.testing.assert_close(left, right, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("place", list(itertools.product((0, 4, 8), (0, 4, 8))), ids=str)
def test_numbers_that_are_not_finite(place: tuple[int, int], number: float) -> None:
    for is_below in (False, True):
        x = matrices(2, 9, 9, is_below=is_below).detach()
        x[1][place] = number
        for all_rows in (False, True):
            left, right = (
                op(x.clone(), 9, all_rows=all_rows) for op in (substitute_rows, reference)
            )
            torch.testing.assert_close(left, right, equal_nan=True, atol=1e-4, rtol=1e-4)


def test_matrices_that_are_substituted_row_by_row() -> None:
    x = matrices(2, 9, 9).detach()
    others: tuple[tuple[Any, Any], ...] = (
        (x.bfloat16(), 9),
        (x.to(torch.complex64), 9),
        (x[:0].clone(), 9),
        (x.clone(), 0),
        (x.clone(), -3),
        (x.clone(), torch.tensor(4)),
        (x[..., :5].clone(), 6),
    )
    for changed, size in others:
        assert implementation("substitute_rows", changed, size) == "reference"
        expected = reference(changed.clone(), size)
        assert torch.equal(substitute_rows(changed, size), expected)


def test_errors_are_those_of_the_loop() -> None:
    leaf = matrices(9, 9)
    expanded = torch.randn(1, 9, 9).expand(2, 9, 9)
    whole = matrices(9, 9).detach()
    others: tuple[tuple[Any, Any], ...] = ((whole[0], 3), (whole, 2.0))
    for x, size in ((leaf, 9), (expanded, 9), (whole, 10), *others):
        messages = []
        for op in (substitute_rows, reference):
            with pytest.raises((RuntimeError, IndexError, TypeError)) as caught:
                op(x, size)
            messages.append(str(caught.value))
        assert messages[0] == messages[1]


def test_modes() -> None:
    x = matrices(2, 9, 9).detach()
    expected = reference(x.clone(), 9)
    with torch.autocast("cpu", torch.bfloat16):
        assert implementation("substitute_rows", x, 9) == "torch-native"
        torch.testing.assert_close(substitute_rows(x.clone(), 9), expected)
    with torch.inference_mode():
        assert implementation("substitute_rows", x.clone(), 9) == "torch-native"
        torch.testing.assert_close(substitute_rows(x.clone(), 9), expected)
    torch.testing.assert_close(
        torch.func.vmap(lambda row: substitute_rows(row * 1, 9))(x), expected
    )
    precision = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert implementation("substitute_rows", x, 9) == "reference"
    finally:
        torch.set_float32_matmul_precision(precision)


def test_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGRAFT_KERNELS")
    x = torch.randn(2, 16, 16)
    assert implementation("substitute_rows", x, 7) == "reference"
    assert implementation("substitute_rows", x, 8) == "torch-native"
