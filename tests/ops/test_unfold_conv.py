"""Test products with unfolded columns by convolutions against the products."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from regraft import ops  # noqa: E402
from regraft.ops import implementation  # noqa: E402

NAMES = ("unfold_conv", "unfold_linear")
WINDOWS: tuple[dict[str, Any], ...] = (
    {"kernel_size": 3},
    {"kernel_size": (3, 2), "padding": (2, 1), "stride": [2, 1], "dilation": (1, 2)},
    {"kernel_size": torch.Size((2, 2)), "padding": 4, "stride": 1},
    {"kernel_size": 1, "stride": 3},
    {"layer": nn.Unfold((3, 3), padding=1, stride=(1, 2))},
)


@pytest.fixture(autouse=True)
def forced_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run kernels for small tensors, too."""
    monkeypatch.setenv("REGRAFT_KERNELS", "always")


def strides(tensor: Any) -> list[int]:
    """Return the strides of dimensions of more than one element."""
    return [step for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]


def operands(
    windows: dict[str, Any], dtype: Any = torch.float32, channels: int = 3, out: int = 5
) -> tuple[Any, Any]:
    """Return images and kernels for windows."""
    torch.manual_seed(len(windows))
    layer = windows.get("layer")
    size = layer.kernel_size if layer is not None else windows["kernel_size"]
    places = size * size if isinstance(size, int) else size[0] * size[1]
    x = torch.randn(2, channels, 9, 8, dtype=dtype, requires_grad=True)
    return x, torch.randn(out, channels * places, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("windows", WINDOWS, ids=str)
def test_results_and_gradients(windows: dict[str, Any], dtype: Any, name: str) -> None:
    for channels, out in itertools.product((1, 3), (1, 5)):
        x, weight = operands(windows, dtype, channels, out)
        assert implementation(name, x, weight, **windows) == "convolution"
        runs = []
        for call in (getattr(ops, name), ops.REFERENCES[name]):
            result = call(x, weight, **windows)
            slope = torch.linspace(-1, 2, result.numel(), dtype=dtype).view(result.shape)
            first = torch.autograd.grad(result, (x, weight), slope, create_graph=True)
            second = torch.autograd.grad(first[0].square().sum(), weight)
            with torch.no_grad():
                runs.append((result, call(x, weight, **windows), *first, *second))
        for left, right in zip(*runs, strict=True):
            scale = max(1.0, float(right.detach().abs().max()))
            tolerance = 2e-2 if dtype is torch.bfloat16 else 1e-5
            torch.testing.assert_close(left, right, atol=tolerance * scale, rtol=tolerance)
        assert [*map(strides, runs[0][:2])] == [*map(strides, runs[1][:2])]
        assert not any(run._is_view() for run in runs[0][:2])


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.to(memory_format=torch.channels_last),
        lambda x: x.mT,
        lambda x: x[:, :, ::2, 1:],
        lambda x: x[:1].expand(3, -1, -1, -1),
    ],
)
def test_other_layouts(change: Callable[[Any], Any]) -> None:
    x, weight = operands({"kernel_size": 3})
    x = change(x.detach())
    for kernels in (weight, torch.randn(27, 5).t(), torch.randn(1, 27).expand(5, -1)):
        for name in NAMES:
            runs = [
                call(x, kernels, kernel_size=3, padding=1)
                for call in (getattr(ops, name), ops.REFERENCES[name])
            ]
            assert implementation(name, x, kernels, kernel_size=3, padding=1) == "convolution"
            torch.testing.assert_close(*runs, atol=1e-4, rtol=1e-5)
            assert strides(runs[0]) == strides(runs[1])
        folded = ops.unfold_conv(x, kernels, 3, padding=1, size=x.shape[2:])
        assert folded.stride() == torch.empty(folded.shape).stride()


@pytest.mark.parametrize("size", [(7, 6), [6, 7], (1, 42), torch.Size((42, 1))])
def test_products_that_are_folded(size: Any) -> None:
    x, weight = operands({"kernel_size": 3})
    assert implementation("unfold_conv", x, weight, 3, size=size) == "convolution"
    result = ops.unfold_conv(x, weight, 3, size=size)
    expected = F.fold(weight @ F.unfold(x, 3), size, (1, 1))
    torch.testing.assert_close(result, expected, atol=1e-4, rtol=1e-5)
    assert result.stride() == expected.stride()


@pytest.mark.parametrize("size", [(7, 7), 6, (6, -7), (42,), (7.0, 6.0)])
def test_sizes_that_do_not_fit(size: Any) -> None:
    x, weight = operands({"kernel_size": 3})
    assert implementation("unfold_conv", x, weight, 3, size=size) == "reference"
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        ops.unfold_conv(x, weight, 3, size=size)


def test_a_linear_layer_and_a_bias() -> None:
    linear, (x, _) = nn.Linear(27, 5), operands({"kernel_size": 3})
    expected = linear(F.unfold(x, 3).transpose(1, 2))
    weights = {"bias": linear.bias}
    for result in (
        ops.unfold_linear(x, None, 3, linear=linear),
        ops.unfold_linear(x, linear.weight, 3, **weights),
    ):
        torch.testing.assert_close(result, expected)
        result.sum().backward()
    plain = nn.Linear(27, 5, bias=False)
    assert implementation("unfold_linear", x, None, 3, linear=plain) == "convolution"
    assert implementation("unfold_linear", x, plain.weight, 3, bias=torch.ones(1)) == "reference"
    assert ops.unfold_linear(x, plain.weight, 3, bias=torch.ones(1)).shape == (2, 42, 5)


EQUATIONS = ("oi,bil->bol", "oi , bil -> blo", "io,bil->bol", "bil,oi->bol", "ncp,cf->npf")


@pytest.mark.parametrize("equation", EQUATIONS)
def test_products_by_an_equation(equation: str) -> None:
    x, weight = operands({"kernel_size": 3})
    terms = equation.replace(" ", "").split(",")
    columns_first = len(terms[0]) == 3
    matrix = terms[1].split("->")[0] if columns_first else terms[0]
    kernels = weight if matrix.startswith("o") else weight.t()
    options: dict[str, Any] = {"padding": 1, "columns_first": columns_first}
    assert implementation("unfold_einsum", equation, x, kernels, 3, **options) == "convolution"
    result = ops.unfold_einsum(equation, x, kernels, 3, **options)
    expected = ops.REFERENCES["unfold_einsum"](equation, x, kernels, 3, **options)
    torch.testing.assert_close(result, expected, atol=1e-4, rtol=1e-5)
    assert result.is_contiguous()
    assert not result._is_view()


def test_equations_that_are_no_convolution() -> None:
    x, weight = operands({"kernel_size": 3})
    equations = ("oi,bil->lbo", "oi,bil->bo", "oi,bil->ob", "oi,bil", "oi,...il->...ol")
    for equation in (*equations, "bi,bil->bl"):
        kernels = weight[:2] if equation.startswith("bi") else weight
        assert implementation("unfold_einsum", equation, x, kernels, 3) == "reference"
        result = ops.unfold_einsum(equation, x, kernels, 3)
        assert torch.equal(result, torch.einsum(equation, kernels, F.unfold(x, 3)))
    assert implementation("unfold_einsum", "oi,bil->bol", x, x, 3) == "reference"


@pytest.mark.parametrize("name", NAMES)
def test_results_may_be_changed_in_place(name: str) -> None:
    x, weight = operands({"kernel_size": 3})
    result = getattr(ops, name)(x, weight, 3)
    result += torch.ones_like(result)
    result.relu_().sum().backward()
    with torch.no_grad():
        result = getattr(ops, name)(x, weight, 3)
    result.mul_(weight.sum()).sum().backward()


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("padding", [0, 1])
def test_numbers_that_are_not_finite(padding: int, name: str, number: float) -> None:
    for position in (0, 1):
        values = [tensor.detach().clone() for tensor in operands({"kernel_size": 3}, channels=4)]
        values[position].view(-1)[7] = number
        runs = [
            call(*values, kernel_size=3, padding=padding)
            for call in (getattr(ops, name), ops.REFERENCES[name])
        ]
        torch.testing.assert_close(*runs, equal_nan=True, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_arguments_for_which_the_columns_are_made(name: str) -> None:
    x, weight = operands({"kernel_size": 3})
    call = getattr(ops, name)
    others: tuple[tuple[Any, ...], ...] = (
        (x[0], weight),  # no batch
        (x[:0], weight),
        (x, weight[:0]),
        (x.double(), weight.double()),
        (x, weight.expand(2, -1, -1)) if name == "unfold_conv" else (x, weight[0]),
    )
    for arguments in others:
        assert implementation(name, *arguments, 3) == "reference"
        assert torch.equal(call(*arguments, 3), ops.REFERENCES[name](*arguments, 3))
    refused: tuple[dict[str, Any], ...] = (
        {"kernel_size": 10},
        {"kernel_size": 0},
        {"kernel_size": 3, "stride": 0},
        {"kernel_size": 3, "dilation": 0},
        {"kernel_size": 3, "padding": -1},
        {"kernel_size": (3, 3, 1)},
        {"kernel_size": 3.0},
        {"kernel_size": 2},
        {"kernel_size": 3, "padding": "same"},
        {},
    )
    for options in refused:
        assert implementation(name, x, weight, **options) == "reference"
        with pytest.raises((RuntimeError, TypeError, IndexError)):
            call(x, weight, **options)
    with pytest.raises(RuntimeError):
        call(x, weight.double(), 3)
    for layout in (weight.detach().to_sparse(), weight.detach().to_mkldnn()):
        assert implementation(name, x.detach(), layout, 3) == "reference"


def test_sizes_that_do_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGRAFT_KERNELS")
    x, weight = torch.randn(4, 8, 16, 16), torch.randn(32, 72)
    large = {"kernel_size": 3, "padding": 1}
    assert implementation("unfold_conv", x, weight, **large) == "convolution"
    assert implementation("unfold_conv", x[:, :, :8, :7], weight, **large) == "reference"
    assert implementation("unfold_conv", x, weight[:1], **large) == "reference"
    assert implementation("unfold_conv", x, weight, **large, stride=(1, 3)) == "reference"
    grey, kernels = torch.randn(32, 1, 28, 28), torch.randn(32, 9)
    assert implementation("unfold_conv", grey, kernels, **large) == "convolution"
    assert implementation("unfold_linear", grey, kernels, **large) == "reference"


def test_modes_in_which_products_are_computed_otherwise() -> None:
    x, weight = operands({"kernel_size": 3})
    with torch.autocast("cpu", torch.bfloat16):
        assert implementation("unfold_conv", x, weight, 3) == "reference"
        assert ops.unfold_conv(x, weight, 3).dtype == torch.bfloat16
    settings = getattr(torch.backends.mkldnn, "conv", None)
    if settings is None:
        return
    precision = settings.fp32_precision
    try:
        settings.fp32_precision = "bf16"
        assert implementation("unfold_conv", x, weight, 3) == "reference"
    finally:
        settings.fp32_precision = precision
    assert implementation("unfold_conv", x, weight, 3) == "convolution"


def test_transformations_of_functions() -> None:
    x, weight = (tensor.detach() for tensor in operands({"kernel_size": 3}))

    def total(kernels: Any) -> Any:
        return ops.unfold_conv(x, kernels, 3).sum()

    weight.requires_grad_()
    (expected,) = torch.autograd.grad(total(weight), weight)
    torch.testing.assert_close(torch.func.grad(total)(weight), expected, atol=1e-4, rtol=1e-5)
    batched = torch.func.vmap(lambda kernels: ops.unfold_conv(x, kernels, 3))(weight[None])
    torch.testing.assert_close(batched[0], ops.unfold_conv(x, weight, 3), atol=1e-4, rtol=1e-5)
