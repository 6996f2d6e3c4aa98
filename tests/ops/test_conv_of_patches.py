"""Test convolutions of patches as large as the kernel against the layer."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from regraft import ops  # noqa: E402
from regraft.ops import implementation  # noqa: E402

KERNELS = ((nn.Conv1d, (5,)), (nn.Conv2d, (3, 4)), (nn.Conv3d, (2, 3, 4)))
DTYPES = (torch.float32, torch.float64, torch.bfloat16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("kind", "kernel"), KERNELS)
def test_results_and_gradients(kind: Any, kernel: tuple[int, ...], dtype: Any) -> None:
    for bias, rows in itertools.product((True, False), (1, 3)):
        torch.manual_seed(rows)
        conv = kind(3, 4, kernel, stride=kernel, bias=bias).to(dtype)
        patches = torch.randn(rows, 3, *kernel, dtype=dtype, requires_grad=True)
        assert implementation("conv_of_patches", patches, conv) == "matrix-product"
        runs = []
        for call in (ops.conv_of_patches, ops.REFERENCES["conv_of_patches"]):
            result, leaves = call(patches, conv), [patches, *conv.parameters()]
            slope = torch.linspace(-1, 2, result.numel(), dtype=dtype).view(result.shape)
            first = torch.autograd.grad(result, leaves, slope, create_graph=True)
            second = torch.autograd.grad(first[0].square().sum(), conv.weight)
            with torch.no_grad():
                runs.append((result, call(patches, conv), *first, *second))
        for left, right in zip(*runs, strict=True):
            # sums of bfloat16 are rounded in another order, by the size of their terms
            atol = 8 * torch.finfo(dtype).eps * float(right.detach().abs().max())
            torch.testing.assert_close(left, right, rtol=8 * torch.finfo(dtype).eps, atol=atol)
        assert [run.stride() for run in runs[0][:2]] == [run.stride() for run in runs[1][:2]]


def test_results_may_be_changed_in_place() -> None:
    conv, patches = nn.Conv2d(3, 4, 5), torch.randn(2, 3, 5, 5)
    ops.conv_of_patches(patches, conv).relu_().sum().backward()
    with torch.no_grad():
        result = ops.conv_of_patches(patches, conv)
    assert not result._is_view()
    result += conv.bias.view(-1, 1, 1)
    result.sum().backward()


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite(number: float) -> None:
    conv, patches = nn.Conv2d(3, 4, 5), torch.randn(2, 3, 5, 5)
    patches[1, 2, 3, 4] = number
    result, expected = ops.conv_of_patches(patches, conv), conv(patches)
    torch.testing.assert_close(result, expected, equal_nan=True)


class OwnConv(nn.Conv2d):  # type: ignore[misc]  # torch is untyped here
    """A convolution of another class."""


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(3, 4, 4, padding=1),
        nn.Conv2d(3, 4, 4, padding="same"),
        nn.Conv2d(3, 4, 3),
        nn.Conv2d(3, 4, (4, 2), dilation=(1, 2)),
        nn.Conv2d(3, 3, 4, groups=3),
        nn.Conv2d(3, 4, 4).half(),
        nn.Conv2d(3, 4, 4).double(),
        nn.ConvTranspose2d(3, 3, 4),
        OwnConv(3, 4, 4),
        nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 4)),
        nn.Conv2d(3, 4, 4).to(memory_format=torch.channels_last),
    ],
    ids=str,
)
def test_other_layers_are_called(conv: Any) -> None:
    assert implementation("conv_of_patches", torch.randn(2, 3, 4, 4), conv) == "reference"


def test_other_patches_are_given_to_the_layer() -> None:
    conv, patches = nn.Conv2d(3, 4, 4, padding="valid", stride=9), torch.randn(2, 3, 4, 4)
    assert implementation("conv_of_patches", patches, conv) == "matrix-product"
    for other in (patches[0], patches[:0], patches.mT, torch.randn(2, 3, 8, 8), patches.half()):
        assert implementation("conv_of_patches", other, conv) == "reference"
    assert ops.conv_of_patches(patches[0], conv).shape == (4, 1, 1)
    assert ops.conv_of_patches(patches[:0], conv).shape == (0, 4, 1, 1)
    with pytest.raises(RuntimeError):
        ops.conv_of_patches(patches[:, :2], conv)


def test_modes_in_which_products_are_computed_otherwise() -> None:
    conv, patches = nn.Conv2d(3, 4, 4), torch.randn(2, 3, 4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert implementation("conv_of_patches", patches, conv) == "reference"
        assert ops.conv_of_patches(patches, conv).dtype == torch.bfloat16
    precision = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert implementation("conv_of_patches", patches, conv) == "reference"
    finally:
        torch.set_float32_matmul_precision(precision)


def test_parameters_that_a_call_replaces() -> None:
    conv, patches = nn.Conv2d(3, 4, 4), torch.randn(2, 3, 4, 4)

    class Embedding(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.conv = conv

        def forward(self, x: Any) -> Any:
            return ops.conv_of_patches(x, self.conv)

    zeros = {f"conv.{name}": torch.zeros_like(value) for name, value in conv.named_parameters()}
    assert not torch.func.functional_call(Embedding(), zeros, (patches,)).any()


def test_a_convolution_of_the_instance_is_called() -> None:
    conv = nn.Conv2d(3, 8, 4)
    conv._conv_forward = lambda x, weight, bias: F.conv2d(x * 2, weight, bias)
    patches = torch.randn(5, 3, 4, 4)
    assert implementation("conv_of_patches", patches, conv) == "reference"
    assert torch.equal(ops.conv_of_patches(patches, conv), conv(patches))
