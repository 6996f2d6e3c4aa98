"""Test normalisations by root mean squares and lengths of rows against those by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from regraft import ops  # noqa: E402
from regraft.ops import REFERENCES, implementation  # noqa: E402

WEIGHT = torch.linspace(0.5, 1.5, 8)
# op → forms, by what follows the input
FORMS: tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...] = (
    ("rms_normalize", (1e-5,), {}),
    ("rms_normalize", (1e-5,), {"casting": "rounded"}),
    ("rms_normalize", (1e-5,), {"casting": "statistics"}),
    ("length_normalize", (-1,), {"minimum": 1e-12, "scale": 3.5}),
    ("length_normalize", (1,), {"minimum": 1.9, "factor": 0.7}),
    ("length_normalize", (-1,), {"summand": 1e-3, "factor": 0.3}),
    ("length_normalize", (0,), {}),
)
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "sliced": lambda x: torch.cat((x, x, x), -1)[..., 8:16],
    "expanded": lambda x: x[:1].expand(x.shape),
    "rows expanded": lambda x: x[..., :1].expand(x.shape),
    "one row": lambda x: x[:1, :1, :1],
}
WEIGHTS: dict[str, Any] = {
    "none": None,
    "row": WEIGHT,
    "number": 2.5,
    "channels": torch.linspace(-1, 1, 3)[:, None, None],
    "transposed": torch.randn(8, 4, generator=torch.Generator().manual_seed(1)).T,
    "wide": WEIGHT.double(),
}


@pytest.fixture(autouse=True)
def forced_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGRAFT_KERNELS", "always")


def image(dtype: Any = torch.float32) -> Any:
    return torch.randn(2, 3, 4, 8, generator=torch.Generator().manual_seed(0)).to(dtype)


def both(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return getattr(ops, name), REFERENCES[name]


def leaf(value: Any, dtype: Any = None) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().to(dtype or value.dtype).requires_grad_()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_results_gradients_and_strides(form: Any, layout: str, dtype: Any) -> None:
    name, arguments, options = form
    # of rows of equal elements the gradient is what roundings leave of zero
    atol = 0.3 if layout == "rows expanded" else 5e-2
    tolerances = {"rtol": 3e-2, "atol": atol} if dtype == torch.bfloat16 else {}
    if dtype == torch.float32 or (dtype == torch.float64 and "casting" in options):
        tolerances = {"rtol": 1e-5, "atol": 1e-5}  # also where a wide weight makes them float64
    for title, weight in WEIGHTS.items():
        runs = []
        for op in both(name):
            x = leaf(LAYOUTS[layout](image(dtype)))
            scale = leaf(weight, None if title == "wide" else dtype)
            result = op(x, *arguments, weight=scale, **options)
            with torch.no_grad():
                plain = op(x, *arguments, weight=scale, **options)
            slope = torch.linspace(-1, 2, result.numel()).sin().view(result.shape)
            leaves = [each for each in (x, scale) if isinstance(each, torch.Tensor)]
            runs.append((result, plain, *torch.autograd.grad(result, leaves, slope.to(result))))
        assert [each.stride() for each in runs[0][:2]] == [each.stride() for each in runs[1][:2]]
        for ours, theirs in zip(*runs, strict=True):
            torch.testing.assert_close(ours, theirs, **tolerances)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_numbers_at_the_limits(form: Any) -> None:
    name, arguments, options = form
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
    x[0], x[1, 2], x[2, 3], x[3, 4] = 0.0, float("nan"), float("inf"), float("-inf")
    for row, size in enumerate((1e25, 1e18, 3e19, 1e-20, 1e-30, 1e-42), 4):
        x[row] *= size
    slope = torch.randn(16, 8, generator=torch.Generator().manual_seed(1))
    slope[0], slope[10] = 0.0, 0.0
    runs = []
    for op in both(name):
        rows = x.clone().requires_grad_()
        result = op(rows, *arguments, **options)
        runs.append((result, *torch.autograd.grad(result, rows, slope)))
    for ours, theirs in zip(*runs, strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_derivatives_of_derivatives(form: Any) -> None:
    name, arguments, options = form
    runs = []
    for op in both(name):
        x = image(torch.float64).requires_grad_()
        slope = x.detach().sin().requires_grad_()
        result = op((x * 2).exp(), *arguments, weight=WEIGHT.double(), **options)
        (first,) = torch.autograd.grad(result, x, slope, create_graph=True)
        runs.append((first, *torch.autograd.grad(first.square().sum(), (x, slope))))
        slopes = torch.stack((slope.detach(), slope.detach().cos()))
        result = op(x, *arguments, **options)
        runs[-1] += torch.autograd.grad(result, x, slopes, is_grads_batched=True)
    for ours, theirs in zip(*runs, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_transformations_and_forward_mode(form: Any) -> None:
    name, arguments, options = form
    x, tangent = image(torch.float64), image(torch.float64).cos()
    runs = []
    for op in both(name):

        def call(x: Any, op: Any = op) -> Any:
            return op(x, *arguments, weight=WEIGHT.double(), **options)

        runs.append(
            (
                torch.func.vmap(call)(x),
                *torch.func.jvp(call, (x,), (tangent,)),
                torch.func.grad(lambda x, call=call: call(x).sin().sum())(x),
            )
        )
    for ours, theirs in zip(*runs, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_changes_in_place(form: Any) -> None:
    name, arguments, options = form
    for op in both(name):
        x, weight = image().requires_grad_(), WEIGHT.clone().requires_grad_()
        hidden, scale = x * 1, weight * 1
        result = op(hidden, *arguments, weight=scale, **options)
        result.mul_(2).add_(hidden)
        torch.autograd.grad(result.sum(), (x, weight), retain_graph=True)
        hidden.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(result.sum(), x)
        result = op(x, *arguments, weight=scale, **options)
        scale.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(result.sum(), x)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_inputs_and_gradients_stay_as_they_are(form: Any) -> None:
    name, arguments, options = form
    x, weight = image(), WEIGHT.clone()
    getattr(ops, name)(x, *arguments, weight=weight, **options)
    getattr(ops, name)(x, *arguments, weight=x, **options)
    assert torch.equal(x, image()) and torch.equal(weight, WEIGHT)
    hidden, slope = x.requires_grad_(), image().cos()
    result = getattr(ops, name)(hidden, *arguments, **options)
    (first,) = torch.autograd.grad(result, hidden, slope, retain_graph=True)
    first.zero_()
    (second,) = torch.autograd.grad(result, hidden, slope)
    assert second.any() and torch.equal(slope, image().cos())
    zeros = torch._efficientzerotensor(x.shape)
    (none,) = torch.autograd.grad(getattr(ops, name)(hidden, *arguments, **options), hidden, zeros)
    assert not none.any()


@pytest.mark.filterwarnings("ignore:.*jit.*:DeprecationWarning")
def test_torchscript_runs_the_compositions() -> None:
    class Norms(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.eps, self.scale = nn.Parameter(WEIGHT.clone()), 1e-6, 8**0.5

        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
            x = ops.rms_normalize(x, self.eps, weight=self.weight, casting="rounded")
            x = ops.rms_normalize(x, self.eps)
            return ops.length_normalize(x, -1, minimum=1e-12, scale=self.scale, weight=self.weight)

    model = Norms()
    scripted = torch.jit.script(model)
    torch.testing.assert_close(scripted(image()), model(image()))


def test_where_kernels_run(monkeypatch: pytest.MonkeyPatch) -> None:
    x = image()
    for casting, dtype in itertools.product(
        ("none", "rounded", "statistics"), (torch.float32, torch.float64, torch.bfloat16)
    ):
        is_reference = (casting, dtype) in (
            ("none", torch.bfloat16),
            ("statistics", torch.float64),
        )
        name = implementation("rms_normalize", x.to(dtype), 1e-6, casting=casting)
        assert name == ("reference" if is_reference else "torch-native")
    assert implementation("length_normalize", x, -1) == "torch-native"
    unsupported = (x[:0], x.to(torch.complex64), torch.tensor(1.0), x.to("meta"), x.to_sparse())
    for tensor in unsupported:
        assert implementation("rms_normalize", tensor, 1e-6) == "reference"
        assert implementation("length_normalize", tensor, -1) == "reference"
    assert implementation("rms_normalize", x, torch.tensor(1e-6)) == "reference"
    for options in (
        {"scale": WEIGHT},
        {"scale": 0.0},
        {"factor": -1.0},
        {"minimum": -1.0},
        {"summand": float("inf")},
    ):
        assert implementation("length_normalize", x, -1, **options) == "reference"
    for dim in (4, (2, 3), True):
        assert implementation("length_normalize", x, dim) == "reference"
    # a length adds squares one after another
    assert implementation("rms_normalize", torch.ones(1, 2**15), 1e-6) == "reference"
    assert implementation("rms_normalize", torch.ones(2**11, 2).T, 1e-6) == "reference"
    monkeypatch.delenv("REGRAFT_KERNELS")
    assert implementation("rms_normalize", x, 1e-6) == "reference"
    assert implementation("rms_normalize", torch.ones(64, 1024), 1e-6) == "torch-native"
    assert implementation("length_normalize", torch.ones(64, 1024), -1) == "torch-native"


def test_numbers_that_are_tensors() -> None:
    x, scale = image(), WEIGHT.clone().requires_grad_()
    result = ops.length_normalize(x, -1, minimum=1e-6, scale=scale)
    torch.testing.assert_close(result, torch.nn.functional.normalize(x, dim=-1) * scale)
    assert result.requires_grad
