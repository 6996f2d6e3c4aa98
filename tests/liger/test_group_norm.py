"""Test the backward kernel of group normalisation, and the reason against its forward kernel
(decision 28)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from regraft.ops import group_norm, implementation  # noqa: E402
from regraft.ops.liger import liger_module  # noqa: E402


def results(run: Any, x: Any, norm: nn.GroupNorm) -> list[Any]:
    """Return the result of a function and the gradients of its input and parameters."""
    result = run(x)
    slope = torch.linspace(-1, 1, result.numel(), dtype=x.dtype).reshape(result.shape) + 2
    return [result, *torch.autograd.grad(result, [x, *norm.parameters()], slope)]


@pytest.mark.parametrize("mean", [0.0, 30.0, 1000.0])
@pytest.mark.parametrize("shape", [(3, 8), (2, 8, 5), (2, 8, 3, 4), (1, 8, 2, 3, 2)])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_results_and_gradients(
    groups: int, shape: tuple[int, ...], mean: float, launches: list[str]
) -> None:
    """The kernel is as near to double precision as PyTorch's own normalisation."""
    torch.manual_seed(0)
    norm = nn.GroupNorm(groups, 8, eps=1e-3)
    norm.weight.data.normal_()
    x = (torch.randn(shape) + mean).requires_grad_()
    wide = copy.deepcopy(norm).double()
    ours, theirs = results(lambda x: group_norm(x, norm), x, norm), results(norm, x, norm)
    exact = results(wide, x.detach().double().requires_grad_(), wide)
    assert launches
    assert torch.equal(ours[0], theirs[0])
    for actual, expected, exact_value in zip(ours[1:], theirs[1:], exact[1:], strict=True):
        scale = float(exact_value.abs().max())
        assert (actual - exact_value).abs().max() <= 2 * (
            expected - exact_value
        ).abs().max() + 1e-5 * scale


def test_second_derivatives_are_pytorchs() -> None:
    norm, x = nn.GroupNorm(2, 4), torch.randn(2, 4, 3, requires_grad=True)
    second_derivatives = []
    for run in (lambda x: group_norm(x, norm), norm):
        (slope,) = torch.autograd.grad(run(x).square().sum(), x, create_graph=True)
        second_derivatives.append(torch.autograd.grad(slope.square().sum(), x)[0])
    torch.testing.assert_close(*second_derivatives)


def test_what_the_kernel_does_not_do_runs_the_layer(launches: list[str]) -> None:
    norm, x = nn.GroupNorm(2, 4), torch.randn(2, 4, 3, 3)
    assert implementation("group_norm", x, norm) == "liger"
    cases: list[tuple[Any, nn.Module]] = [
        (x, nn.GroupNorm(2, 4, affine=False)),
        (x, nn.GroupNorm(2, 4, bias=False)),
        (x, nn.Sequential(norm)),
        (x.half(), nn.GroupNorm(2, 4).half()),
        (x.to(memory_format=torch.channels_last), norm),
        (x[:0], norm),
        (x[:, :, 0, 0], nn.GroupNorm(4, 4)),
    ]
    for value, layer in cases:
        assert implementation("group_norm", value, layer) == "reference"
        result = group_norm(value, layer)
        torch.testing.assert_close(result, layer(value), rtol=0, atol=0)
        assert result.stride() == layer(value).stride()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert implementation("group_norm", x, norm) == "reference"
    torch.use_deterministic_algorithms(True)
    try:
        assert implementation("group_norm", x, norm) == "reference"
    finally:
        torch.use_deterministic_algorithms(False)
    norm.register_forward_hook(lambda *_: None)
    assert implementation("group_norm", x, norm) == "reference"
    assert not launches


def test_a_wrong_number_of_channels_fails_as_the_layer_does() -> None:
    norm, x = nn.GroupNorm(2, 4), torch.randn(2, 6, 3)
    with pytest.raises(RuntimeError) as theirs:
        norm(x)
    with pytest.raises(RuntimeError) as ours:
        group_norm(x, norm)
    assert str(ours.value) == str(theirs.value)


def error(mean: float, function: Any) -> float:
    """Return the largest error of a function on inputs with a mean."""
    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, 8, 16, 16) + mean, torch.ones(8), torch.zeros(8)
    exact = F.group_norm(x.double(), 2, weight.double(), bias.double(), 1e-5)
    return float((function(x, weight, bias) - exact).abs().max())


def test_ligers_forward_kernel_loses_digits_where_the_mean_is_large() -> None:
    module = liger_module("group_norm")
    assert module is not None

    def kernel(x: Any, weight: Any, bias: Any) -> Any:
        return module.group_norm_forward(x, 8, 2, weight, bias, 1e-5)[0]

    assert error(0, kernel) < 1e-5
    assert error(1000, lambda x, weight, bias: F.group_norm(x, 2, weight, bias, 1e-5)) < 1e-3
    assert error(1000, kernel) > 1e-2
