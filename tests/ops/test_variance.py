"""Test variances along dimensions against PyTorch's."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from regraft import ops  # noqa: E402
from regraft.ops import implementation  # noqa: E402
from regraft.ops import variance as variance_function  # noqa: E402

NAMES = ("variance", "standard_deviation", "variance_and_mean")
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"unbiased": False},
    {"correction": 0, "keepdim": True},
    {"correction": 2},
)
FORMATS = ("contiguous", "channels last", "transposed", "expanded")


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGRAFT_KERNELS", "always")


def draw(kind: str, dtype: Any, memory: str) -> Any:
    x = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    if kind == "mixed":
        x[:, 0] = 0.0
        x[0, 1] = 0.1  # equal elements, whose mean is rounded
        x[1, 1, 0, 0], x[1, 2, 0, 0] = float("nan"), float("inf")
    factors = {"far from zero": 1e-2, "huge": 1e19, "tiny": 1e-22}
    x = x * factors.get(kind, 1.0) + (100 if kind == "far from zero" else 0)
    if memory == "channels last":
        return x.contiguous(memory_format=torch.channels_last)
    if memory == "transposed":
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    return x[..., :1].expand_as(x) if memory == "expanded" else x


def derivatives(function: Any, x: Any, dim: Any, options: dict[str, Any]) -> tuple[Any, ...]:
    """Return the results of a function, and the gradients of two orders of their weighted sum."""
    x = x.detach().requires_grad_()
    results = function(x, dim, **options)
    results = results if isinstance(results, tuple) else (results,)
    weights = [torch.linspace(-1, 2, each.numel()).sin().view_as(each) for each in results]
    total = sum((each * weight).sum() for each, weight in zip(results, weights, strict=True))
    (first,) = torch.autograd.grad(total, x, create_graph=True)
    slope = torch.linspace(-1, 2, x.numel(), dtype=x.dtype).sin().view(x.shape)
    (second,) = torch.autograd.grad((first * slope).sum(), x)
    return results, first.detach(), second


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "far from zero", "mixed", "huge", "tiny"])
@pytest.mark.parametrize("memory", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_results_and_gradients(name: str, dtype: Any, memory: str, kind: str) -> None:
    x = draw(kind, dtype, memory)
    several = [dims for count in (1, 2, 3) for dims in itertools.combinations(range(4), count)]
    dims = [1, -1, [-1, 1], *several]
    rtol = 2e-6 if dtype is torch.float32 else 1e-9
    means = 1e-6 * float(x.nan_to_num(0, 0, 0).abs().max())
    # every option for each choice of dimensions where the memory is plain, else one in turn
    is_thorough = kind in ("normal", "mixed") and memory == "contiguous"
    all_choices = itertools.product(dims, OPTIONS)
    for dim, options in all_choices if is_thorough else zip(dims, itertools.cycle(OPTIONS)):
        if dim in (0, (0,)) and options.get("correction") == 2:
            continue  # nothing is left of two elements
        ours = derivatives(getattr(ops, name), x, dim, options)
        theirs = derivatives(ops.REFERENCES[name], x, dim, options)
        for left, right in zip(ours[0], theirs[0], strict=True):
            assert left.stride() == right.stride()
            atol = means if name == "variance_and_mean" else 0
            torch.testing.assert_close(left, right, rtol=rtol, atol=atol, equal_nan=True)
        for left, right in zip(ours[1:], theirs[1:], strict=True):
            atol = 1e-5 * float(right.nan_to_num(0, 0, 0).abs().max()) + 1e-5
            torch.testing.assert_close(left, right, rtol=1e-4, atol=atol, equal_nan=True)


@pytest.mark.parametrize("memory", FORMATS)
@pytest.mark.parametrize("name", NAMES)
def test_chunks(name: str, memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(variance_function.__globals__, "_CHUNK_SIZE", 9)
    test_results_and_gradients(name, torch.float32, memory, "mixed")


def test_long_rows() -> None:
    x = torch.rand(2, 2**20, generator=torch.Generator().manual_seed(0)) + 1
    exact = x.double().var(1).float()
    torch.testing.assert_close(ops.variance(x, 1), exact, rtol=1e-6, atol=0)
    torch.testing.assert_close(
        ops.variance(x[:, : 2**14], 1), x[:, : 2**14].double().var(1).float()
    )


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_many_runs_of_memory(order: tuple[int, ...]) -> None:
    x = torch.rand(2**15, 4, 16, generator=torch.Generator().manual_seed(0)) * 3 + 900
    x, dims = x.permute(order), [order.index(axis) for axis in (0, 2)]
    exact = torch.var_mean(x.double(), dims)
    actual = ops.variance_and_mean(x, dims)
    for left, right in zip(actual, exact, strict=True):
        torch.testing.assert_close(left, right.float(), rtol=2e-6, atol=0)
    root = ops.standard_deviation(x.contiguous(), dims)
    torch.testing.assert_close(root, exact[0].sqrt().float(), rtol=2e-6, atol=0)


@pytest.mark.parametrize("length", [256, 4096, 16384])
def test_outliers_in_long_rows(length: int) -> None:
    for outlier, usual in itertools.product((30.0, 1e3, 1e5), (0.9, 1.27)):
        x = torch.full((64, length), usual)
        x[:, 1::2], x[:, 0] = -usual, outlier
        exact = x.double().var(1).float()
        torch.testing.assert_close(ops.variance(x, 1), exact, rtol=2e-6, atol=0)


def test_where_variances_run_in_two_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(4, 8)
    assert implementation("variance", x, 1) == "torch-native"
    assert implementation("variance", x, [-1], correction=0) == "torch-native"
    for tensor in (x.half(), x.to(torch.complex64), x[:0], x[:1], x.to("meta")):
        assert implementation("variance", tensor, 1) == "reference"
    for dim in (True, None, (), (0, 1), (1, 1), 2, 1.0, (True,)):
        assert implementation("variance", x, dim) == "reference"
    for options in ({"correction": 8}, {"correction": "1"}, {"unbiased": 1}, {"keepdim": 1}):
        assert implementation("variance", x, 1, **options) == "reference"
    monkeypatch.delenv("REGRAFT_KERNELS")
    assert implementation("variance", x, 1) == "reference"
    assert implementation("variance", torch.randn(256, 64), 1) == "torch-native"


@pytest.mark.skipif(torch.__version__ < (2, 13), reason="var('a') raises another error before")
def test_a_flag_in_the_place_of_a_dimension() -> None:
    x: Any = torch.randn(4, 8)
    assert torch.equal(ops.variance(x, False), x.var(False))
    assert torch.equal(ops.standard_deviation(x, True), x.std(True))
    with pytest.raises(TypeError):
        ops.variance(x, "a")  # type: ignore[arg-type]


def test_an_array() -> None:
    numpy = pytest.importorskip("numpy")
    values: Any = numpy.arange(6.0).reshape(2, 3)
    assert (ops.standard_deviation(values, 0) == values.std(0)).all()


def test_a_changed_input_is_refused_in_the_backward_pass() -> None:
    x = torch.randn(4, 8, requires_grad=True)
    inner = x * 1
    result = ops.variance(inner, 1)
    inner.add_(1)
    with pytest.raises(RuntimeError, match="inplace"):
        result.sum().backward()


def test_results_may_be_changed_in_place() -> None:
    x = torch.randn(4, 8, requires_grad=True)
    for keepdim in (False, True):
        expected = x.var(1, keepdim=keepdim).add_(1)
        result = ops.variance(x, 1, keepdim=keepdim)
        result.add_(1)
        torch.testing.assert_close(result, expected)
        (ours,), (theirs,) = (torch.autograd.grad(y.square().sum(), x) for y in (result, expected))
        torch.testing.assert_close(ours, theirs)
    with torch.no_grad():
        assert ops.variance(x, 1)._base is None


def test_batched_gradients_and_transformations() -> None:
    x = torch.randn(4, 8, requires_grad=True)
    for function in (ops.variance, ops.standard_deviation):
        expected = torch.autograd.functional.jacobian(lambda x, f=function: f(x, 1), x)
        actual = torch.autograd.functional.jacobian(
            lambda x, f=function: f(x, 1), x, vectorize=True
        )
        torch.testing.assert_close(actual, expected)
        torch.testing.assert_close(torch.func.jacrev(lambda x, f=function: f(x, 1))(x), expected)
        torch.testing.assert_close(torch.func.jacfwd(lambda x, f=function: f(x, 1))(x), expected)


@pytest.mark.parametrize("name", NAMES)
def test_an_exported_program_takes_other_sizes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGRAFT_KERNELS")

    class Model(nn.Module):
        def forward(self, x: Any) -> Any:
            return getattr(ops, name)(x, 1)

    sizes = ({0: torch.export.Dim("batch", min=2, max=5000)},)
    program = torch.export.export(
        Model(), (torch.randn(3, 256),), dynamic_shapes=sizes, strict=True
    )
    x = torch.randn(300, 256)
    torch.testing.assert_close(program.module()(x), ops.REFERENCES[name](x, 1))
