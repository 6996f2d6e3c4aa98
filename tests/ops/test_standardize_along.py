"""Test normalisations over several dimensions against those by hand."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from regraft import ops  # noqa: E402
from regraft.ops import implementation  # noqa: E402

DIMS = ((2, 3), (-1, -2), (1, 2, 3), (0, 2, 3), [3, 0, 2], (1, 2), (0, 1, 2))
FORMS = (
    {"unbiased": True},
    {"unbiased": False},
    {"by_squares": True},
)


def image(memory: str, dtype: Any = torch.float64) -> Any:
    x = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[0, 0] = 0.0
    x[1, 0] = 2.5
    if memory == "channels last":
        return x.contiguous(memory_format=torch.channels_last)
    return x.transpose(0, 3).contiguous().transpose(0, 3) if memory == "transposed" else x


@pytest.mark.parametrize("memory", ["contiguous", "channels last", "transposed"])
@pytest.mark.parametrize("dims", DIMS, ids=str)
def test_results_and_gradients(dims: Any, memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGRAFT_KERNELS", "always")
    for options, eps in itertools.product(FORMS, (1e-5, 0.1)):
        x = image(memory).requires_grad_()
        slope = torch.linspace(-1, 2, x.numel(), dtype=x.dtype).sin().view(x.shape)
        runs = []
        for op in (ops.standardize_along, ops.REFERENCES["standardize_along"]):
            result = op(x, dims, eps, **options)
            (first,) = torch.autograd.grad(result, x, slope, create_graph=True)
            (second,) = torch.autograd.grad((first * slope).sum(), x)
            with torch.no_grad():
                runs.append((result, op(x, dims, eps, **options), first, second))
        assert runs[0][0].stride() == runs[1][0].stride()
        assert runs[0][1].stride() == runs[1][1].stride()
        for left, right in zip(*runs, strict=True):
            torch.testing.assert_close(left, right)


@pytest.mark.parametrize("memory", ["contiguous", "channels last"])
@pytest.mark.parametrize("dims", DIMS, ids=str)
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite(number: float, dims: Any, memory: str) -> None:
    for options in FORMS:
        x = image(memory, torch.float32)
        x[1, 1, 2, 2] = number
        x.requires_grad_()
        pairs = [
            (result := op(x, dims, 1e-5, **options), *torch.autograd.grad(result.sum(), x))
            for op in (ops.standardize_along, ops.REFERENCES["standardize_along"])
        ]
        for left, right in zip(*pairs, strict=True):
            torch.testing.assert_close(left, right, equal_nan=True, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("memory", ["contiguous", "channels last"])
@pytest.mark.parametrize("dims", [(2, 3), (1, 2, 3), (0, 2, 3)], ids=str)
def test_many_elements_far_from_zero(dims: Any, memory: str) -> None:
    x = torch.rand(16, 4, 128, 128, generator=torch.Generator().manual_seed(0)) + 30
    if memory == "channels last":
        x = x.contiguous(memory_format=torch.channels_last)
    exact = ops.REFERENCES["standardize_along"](x.double(), dims, 1e-5)
    for is_training in (False, True):
        result = ops.standardize_along(x.requires_grad_(is_training), dims, 1e-5)
        torch.testing.assert_close(result.detach().double(), exact, rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_the_composition(dtype: Any) -> None:
    x = image("contiguous", dtype)
    for options in FORMS:
        result = ops.standardize_along(x, (2, 3), 1e-5, **options)
        assert torch.equal(result, ops.REFERENCES["standardize_along"](x, (2, 3), 1e-5, **options))


def test_which_kernel_runs() -> None:
    x = torch.randn(2, 3, 4, 5, requires_grad=True)
    last = x.detach().contiguous(memory_format=torch.channels_last)
    for dims, tensor, expected in (
        ((2, 3), x, "layer-norm"),
        ((1, 2, 3), x.detach(), "layer-norm"),
        ((2, 3), last, "reference"),
        ((0, 2, 3), x, "batch-norm"),
        ((0, 2, 3), x.detach(), "reference"),
        ((0, 2, 3), last.requires_grad_(), "reference"),
        ((0, 1), x, "reference"),
        ((2, 2), x, "reference"),
        (3, x, "reference"),
        ((True, 2), x, "reference"),
        ((2, 3), x[:, :, :1, :1].contiguous(), "reference"),
        ((0, 2, 3), x[:1, :, :1, :1].contiguous(), "reference"),
        ((2, 3), x[:0], "reference"),
    ):
        assert implementation("standardize_along", tensor, dims, 1e-5) == expected
    for eps in (0.0, -1.0, 1, torch.tensor(0.1)):
        assert implementation("standardize_along", x, (2, 3), eps) == "reference"


def test_one_element() -> None:
    x = torch.randn(2, 3, 1, 1)
    assert ops.standardize_along(x, (2, 3), 1e-5).isnan().all()
    assert not ops.standardize_along(x, (2, 3), 1e-5, unbiased=False).any()
    with pytest.raises((RuntimeError, IndexError)):
        ops.standardize_along(x, (2, 4), 1e-5)
