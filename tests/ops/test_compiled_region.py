"""Test compiled regions: gradients as often as eager code has them, and no limit that other models
use up.

On CPU, where `compiles` has to be forced; the code generator is the one that CUDA uses, with
another target.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from regraft.ops import dropout_add_layer_norm, implementation, linear_gelu  # noqa: E402

pytestmark = pytest.mark.skipif(
    torch.__version__ < (2, 13), reason="regions are compiled from PyTorch 2.13 on"
)
region = import_module("regraft.ops.compiled_region")
norm_op, gelu_op = (
    import_module(f"regraft.ops.{name}") for name in ("dropout_add_layer_norm", "linear_gelu")
)


@pytest.fixture(autouse=True)
def forced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Compile on CPU with an empty cache, and reset the compiler afterwards."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    for module in (norm_op, gelu_op):
        monkeypatch.setattr(module, "compiles", lambda *_: True)
    torch._dynamo.reset()
    region._compiled_function.cache_clear()
    yield
    torch._dynamo.reset()
    region._compiled_function.cache_clear()


def derivatives(compute: Callable[[], Any], inputs: list[Any]) -> list[Any]:
    """Return first derivatives from three passes through one graph, then second derivatives."""
    slope = torch.linspace(-1, 1, compute().numel()).reshape(compute().shape)
    result = compute()
    results = [torch.autograd.grad(result, inputs, slope, retain_graph=True) for _ in range(2)]
    results.append(torch.autograd.grad(result, inputs, slope))
    first = torch.autograd.grad(compute(), inputs, slope, create_graph=True)
    total = sum(
        (gradient * gradient.detach().cos()).sum() for gradient in first if gradient.requires_grad
    )
    results += [first, torch.autograd.grad(total, inputs, allow_unused=True)]
    return results


def randomly(module: nn.Module) -> nn.Module:
    """Draw the parameters of a module."""
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_derivatives_of_the_activation(approximate: str) -> None:
    x, linear = torch.randn(3, 5, 8, requires_grad=True), nn.Linear(8, 4)
    inputs = [x, *linear.parameters()]
    assert implementation("linear_gelu", x, linear) == "torch.compile"
    assert "Region" in type(linear_gelu(x, linear).grad_fn).__name__
    torch.testing.assert_close(
        derivatives(lambda: linear_gelu(x, linear, approximate=approximate), inputs),
        derivatives(lambda: F.gelu(linear(x), approximate=approximate), inputs),
    )


@pytest.mark.slow
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("doubled", [True, False])
def test_derivatives_of_the_norm(affine: bool, doubled: bool) -> None:
    x = torch.randn(3, 5, 8, requires_grad=True)
    residual = x if doubled else torch.randn(5, 8, requires_grad=True)
    norm = randomly(nn.LayerNorm(8, elementwise_affine=affine))
    inputs = [x, *([] if doubled else [residual]), *norm.parameters()]
    torch.testing.assert_close(
        derivatives(
            lambda: dropout_add_layer_norm(x, residual, norm, p=0.4, training=False), inputs
        ),
        derivatives(lambda: norm(x + residual), inputs),
    )


@pytest.mark.slow
def test_second_derivatives_drop_what_the_first_pass_dropped() -> None:
    x, residual = (torch.randn(6, 8, requires_grad=True) for _ in range(2))
    norm = randomly(nn.LayerNorm(8))
    result = dropout_add_layer_norm(x, residual, norm, p=0.5, training=True)
    first = torch.autograd.grad(result.cos().sum(), [x, residual], create_graph=True)
    mask = (first[0] != 0).detach()
    assert 0 < mask.sum() < mask.numel()
    composition = norm(x * mask * 2 + residual)
    expected = torch.autograd.grad(composition.cos().sum(), [x, residual], create_graph=True)
    torch.testing.assert_close(result, composition)
    torch.testing.assert_close(first, expected)
    torch.testing.assert_close(
        *(
            torch.autograd.grad(gradients[0].square().sum(), [x, residual, norm.weight])
            for gradients in (first, expected)
        )
    )


@pytest.mark.slow
def test_a_pass_that_donates_its_buffers_is_not_taken_from_the_cache() -> None:
    x, linear = torch.randn(4, 8, requires_grad=True), nn.Linear(8, 4)
    inputs = [x, *linear.parameters()]
    function = types.FunctionType(gelu_op._linear_gelu.__code__.replace(), gelu_op.__dict__)
    donating = torch.compile(function, dynamic=True)(None, x, linear.weight, linear.bias, "none")[0]
    torch.autograd.grad(donating.sum(), inputs)
    torch._dynamo.reset()
    torch.testing.assert_close(
        derivatives(lambda: linear_gelu(x, linear), inputs),
        derivatives(lambda: F.gelu(linear(x)), inputs),
    )


@pytest.mark.slow
def test_checkpointed_layers_are_computed_twice() -> None:
    x, linear, norm = (
        torch.randn(4, 8, requires_grad=True),
        nn.Linear(8, 8),
        randomly(nn.LayerNorm(8)),
    )
    calls = []

    def layer(x: Any) -> Any:
        calls.append(1)
        return dropout_add_layer_norm(linear_gelu(x, linear), x, norm, training=False)

    gradients = torch.autograd.grad(
        checkpoint(layer, x, use_reentrant=False).sin().sum(), [x, *linear.parameters()]
    )
    assert len(calls) == 2
    torch.testing.assert_close(
        gradients, torch.autograd.grad(layer(x).sin().sum(), [x, *linear.parameters()])
    )


@pytest.mark.slow
def test_one_model_does_not_use_up_the_compilations_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        region,
        "compile_region",
        lambda function: torch.compile(function, dynamic=True, backend="aot_eager"),
    )
    kinds = [
        (shape, dtype, epsilon, affine)
        for shape in ((4, 8), (2, 4, 8), (1, 4, 8))
        for dtype in (torch.float32, torch.float64)
        for epsilon in (1e-5, 1e-6, 1e-12)
        for affine in (True, False)
    ]
    for shape, dtype, epsilon, affine in kinds:
        norm = nn.LayerNorm(8, epsilon, elementwise_affine=affine, dtype=dtype)
        x = torch.randn(shape, dtype=dtype, requires_grad=True)
        with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
            result = dropout_add_layer_norm(x, x, norm, training=False)
        assert "Region" in type(result.grad_fn).__name__
        torch.testing.assert_close(result, norm(x + x))


@pytest.mark.parametrize("raises", [True, False])
def test_beyond_the_limit_the_composition_runs(
    monkeypatch: pytest.MonkeyPatch, raises: bool
) -> None:
    monkeypatch.setattr(
        region,
        "compile_region",
        lambda function: torch.compile(function, dynamic=False, backend="aot_eager"),
    )
    linear, names = nn.Linear(8, 4), []
    with torch._dynamo.config.patch(recompile_limit=1, fail_on_recompile_limit_hit=raises):
        for rows in (2, 3, 4):
            x = torch.randn(rows, 8, requires_grad=True)
            result = linear_gelu(x, linear)
            names.append(type(result.grad_fn).__name__)
            torch.testing.assert_close(result, F.gelu(linear(x)))
            torch.autograd.grad(result.sum(), x)
    assert "Region" in names[0] and "Region" not in names[-1]


def test_transformations_of_functions_see_the_composition(monkeypatch: pytest.MonkeyPatch) -> None:
    from regraft.ops.plain import compiles

    x, linear = torch.randn(4, 8), nn.Linear(8, 4)
    asked = []
    monkeypatch.setattr(gelu_op, "compiles", lambda value: asked.append(compiles(value)))
    torch.func.grad(lambda value: linear_gelu(value, linear).sum())(x)
    assert asked == [False]
