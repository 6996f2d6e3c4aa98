"""Test the kernels of layer normalisation, softmax and cross entropy, and the defects of patches
written by hand."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from regraft.ops import (  # noqa: E402
    cross_entropy,
    functional_layer_norm,
    implementation,
    layer_norm,
    row_softmax,
)


def close(run: Any, reference: Any, leaves: list[Any]) -> None:
    """Assert that two functions have equal results and gradients."""
    runs = []
    for function in (run, reference):
        result = function()
        slope = torch.linspace(-1, 1, result.numel()).reshape(result.shape).to(result.dtype) + 2
        runs.append([result, *torch.autograd.grad(result, leaves, slope)])
    for ours, theirs in zip(*runs, strict=True):
        # either side adds rows up in half precision: a few units in the last place of the sum
        torch.testing.assert_close(
            ours, theirs, **({"rtol": 1e-2, "atol": 5e-3} if ours.dtype == torch.half else {})
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_layer_norm(dtype: Any, launches: list[str]) -> None:
    norm = nn.LayerNorm(9, eps=1e-3).to(dtype)
    norm.weight.data.normal_()
    x = torch.randn(2, 5, 9).to(dtype).requires_grad_()
    close(lambda: layer_norm(x, norm), lambda: norm(x), [x, *norm.parameters()])
    assert launches


@pytest.mark.parametrize(
    "norm",
    [nn.LayerNorm(9, bias=False), nn.LayerNorm(9, elementwise_affine=False), nn.LayerNorm((5, 9))],
    ids=repr,
)
def test_other_layer_norms_are_called(norm: nn.Module) -> None:
    x = torch.randn(2, 5, 9)
    assert implementation("layer_norm", x, norm) == "reference"
    assert torch.equal(layer_norm(x, norm), norm(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("views", [True, False])
def test_layer_norm_of_arguments(
    dtype: Any, has_bias: bool, views: bool, launches: list[str]
) -> None:
    x = torch.randn(2, 5, 9).to(dtype)
    x = (x.mT.contiguous().mT if views else x).requires_grad_()
    weight, bias = (torch.randn(9).to(dtype).requires_grad_() for _ in range(2))
    arguments = (x, x.shape[-1:], weight, bias if has_bias else None, 1e-3)
    leaves = [x, weight, *([bias] if has_bias else [])]
    assert implementation("functional_layer_norm", *arguments) == "liger"
    close(lambda: functional_layer_norm(*arguments), lambda: F.layer_norm(*arguments), leaves)
    assert launches
    if dtype == torch.float32:
        seconds = []
        for function in (functional_layer_norm, F.layer_norm):
            slopes = torch.autograd.grad(
                function(*arguments).square().sum(), leaves, create_graph=True
            )
            total = torch.stack([slope.square().sum() for slope in slopes]).sum()
            seconds.append(torch.autograd.grad(total, leaves))
        torch.testing.assert_close(*seconds, rtol=1e-4, atol=1e-4)


def test_parameters_that_need_no_gradients() -> None:
    x, weight, beta = torch.randn(3, 9, requires_grad=True), torch.randn(9), torch.zeros(9)
    close(
        lambda: functional_layer_norm(x, (9,), weight, beta),
        lambda: F.layer_norm(x, (9,), weight, beta),
        [x],
    )


@pytest.mark.parametrize(
    "arguments",
    [
        (torch.randn(5, 9), (9,), None, None),
        (torch.randn(5, 9), (5, 9), torch.randn(5, 9), None),
        (torch.randn(5, 9).double(), (9,), torch.randn(9).double(), None),
        (torch.randn(5, 9).bfloat16(), (9,), torch.randn(9), None),
        (torch.randn(0, 9), (9,), torch.randn(9), torch.randn(9)),
        (torch.randn(5, 9), (9,), torch.randn(9), torch.randn(9), 0),
    ],
    ids=range(6),
)
def test_arguments_that_run_as_the_function(arguments: tuple[Any, ...]) -> None:
    assert implementation("functional_layer_norm", *arguments) == "reference"
    assert torch.equal(functional_layer_norm(*arguments), F.layer_norm(*arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        (torch.ones(5, 9, dtype=torch.int64), (9,), torch.randn(9), None),
        (torch.randn(5, 9), (8,), torch.randn(8), None),
        (torch.randn(5, 9), (9,), torch.randn(8), None),
        (torch.randn(5, 9), 9, torch.randn(9), None),
    ],
    ids=range(4),
)
def test_errors_of_the_function(arguments: tuple[Any, ...]) -> None:
    for function in (functional_layer_norm, F.layer_norm):
        with pytest.raises((RuntimeError, TypeError)):
            function(*arguments)


def test_hooks_run_and_nothing_is_rebound(launches: list[str]) -> None:
    """Patches written by hand put another class in the place of `torch.nn.LayerNorm`, for the whole
    process."""
    calls: list[Any] = []
    norm, x = nn.LayerNorm(9), torch.randn(3, 9)
    before = nn.LayerNorm, F.cross_entropy, nn.CrossEntropyLoss, F.layer_norm
    layer_norm(x, norm)
    cross_entropy(x, torch.tensor([0, 1, 2]))
    assert before == (nn.LayerNorm, F.cross_entropy, nn.CrossEntropyLoss, F.layer_norm)
    assert launches
    norm.register_forward_hook(lambda *_: calls.append(1))
    layer_norm(x, norm)
    assert calls == [1]


def test_softmax(launches: list[str]) -> None:
    x = torch.randn(2, 5, 9, requires_grad=True)
    close(lambda: row_softmax(x), lambda: x.softmax(-1), [x])
    half = torch.randn(4, 9).half().requires_grad_()
    close(
        lambda: row_softmax(half, dtype=torch.float32),
        lambda: F.softmax(half, -1, dtype=torch.float32),
        [half],
    )
    close(lambda: row_softmax(x, layer=nn.Softmax(-1)), lambda: x.softmax(-1), [x])
    assert len(launches) == 3
    hidden = torch.full((2, 3), -torch.inf)
    assert row_softmax(hidden).isnan().all()
    assert implementation("row_softmax", half) == "reference"
    assert implementation("row_softmax", x, layer=nn.Softmax(1)) == "reference"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ignore_index": 2},
        {"reduction": "sum"},
        {"reduction": "none"},
        {"label_smoothing": 0.2, "ignore_index": 1},
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_cross_entropy(options: dict[str, Any], dtype: Any, launches: list[str]) -> None:
    x, target = torch.randn(7, 11).to(dtype).requires_grad_(), torch.tensor([0, 1, 2, 3, 10, 1, 5])
    close(
        lambda: cross_entropy(x, target, **options),
        lambda: F.cross_entropy(x, target, **options),
        [x],
    )
    layer = nn.CrossEntropyLoss(**options)
    close(lambda: cross_entropy(x, target, layer=layer), lambda: layer(x, target), [x])
    assert len(launches) == 2


@pytest.mark.parametrize("wrong", [-1, 5])
def test_a_target_that_is_no_class_is_an_error(wrong: int) -> None:
    if torch.get_default_device().type == "cuda":
        pytest.skip("the error of a device ends its process")
    target = torch.tensor([0, wrong, 2])
    with pytest.raises(RuntimeError, match="a target is out of bounds"):
        cross_entropy(torch.randn(3, 5), target)
    assert cross_entropy(torch.randn(3, 5), target, ignore_index=wrong).isfinite()


def test_a_kernel_with_other_parameters_is_not_launched(
    monkeypatch: pytest.MonkeyPatch, launches: list[str]
) -> None:
    module = importlib.import_module("regraft.ops.cross_entropy")
    monkeypatch.setattr(module, "_VARIABLES", (*module._VARIABLES, "another"))
    monkeypatch.setattr(
        module, "_takes_arguments", functools.cache(module._takes_arguments.__wrapped__)
    )
    x, target = torch.randn(3, 5), torch.arange(3)
    assert torch.equal(cross_entropy(x, target), F.cross_entropy(x, target)) and not launches


def test_the_logits_stay(launches: list[str]) -> None:
    """Liger's own function leaves the gradient where the logits were, which models return."""
    x, target = torch.randn(7, 11, requires_grad=True), torch.arange(7)
    copy = x.detach().clone()
    loss = cross_entropy(x, target)
    first, second = (torch.autograd.grad(loss, x, retain_graph=True)[0] for _ in range(2))
    assert launches
    assert torch.equal(x, copy)
    assert torch.equal(first, second)


def test_rows_that_are_all_ignored_are_not_a_number(launches: list[str]) -> None:
    assert cross_entropy(torch.randn(3, 5), torch.full((3,), -100)).isnan()
    assert launches


def test_what_has_no_second_derivative_says_so() -> None:
    x = torch.randn(3, 5, requires_grad=True)
    with pytest.raises(RuntimeError, match="derivative for liger_backward is not implemented"):
        torch.autograd.grad(cross_entropy(x, torch.arange(3)), x, create_graph=True)


def test_other_targets_run_as_the_composition(launches: list[str]) -> None:
    x = torch.randn(3, 5)
    shares = x.softmax(-1)
    assert torch.equal(cross_entropy(x, shares), F.cross_entropy(x, shares))
    spatial, places = torch.randn(2, 5, 4), torch.ones(2, 4, dtype=torch.long)
    assert torch.equal(cross_entropy(spatial, places), F.cross_entropy(spatial, places))
    weight = torch.rand(5)
    weighted = F.cross_entropy(x, torch.arange(3), weight)
    assert torch.equal(cross_entropy(x, torch.arange(3), weight=weight), weighted)
    assert not launches


def test_logits_of_ignored_rows_stay_where_no_gradient_is_needed() -> None:
    logits, target = torch.randn(4, 7), torch.tensor([1, -100, 3, -100])
    before = logits.clone()
    with torch.no_grad():
        loss = cross_entropy(logits, target)
    torch.testing.assert_close(loss, F.cross_entropy(before, target))
    assert torch.equal(logits, before)
