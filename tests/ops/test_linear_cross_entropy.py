"""Test the kernel of `linear_cross_entropy` against the composition, and the choice between
them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional

from conftest import DEVICE
from regraft.benchmarking.steps import Call, peak, step
from regraft.ops import REFERENCES, implementation, linear_cross_entropy
from regraft.ops.linear_cross_entropy import CHUNK

reference = REFERENCES["linear_cross_entropy"]
WIDTH, CLASSES, BATCH = 16, 50, 4


def case(length: int = CHUNK, bias: bool = True) -> tuple[torch.Tensor, torch.Tensor, nn.Linear]:
    """Return an input, a target and a Linear layer."""
    torch.manual_seed(0)
    x = torch.randn(BATCH, length, WIDTH, requires_grad=True)
    target = torch.randint(0, CLASSES, (BATCH, length))
    target[0, 3] = -100
    return x, target, nn.Linear(WIDTH, CLASSES, bias=bias)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shift", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"reduction": "sum"},
        {"ignore_index": 3},
        {"classes": CLASSES},
        {"layer": nn.CrossEntropyLoss(ignore_index=2)},
    ],
)
def test_the_kernel_computes_what_the_composition_does(
    bias: bool, shift: bool, options: dict[str, Any]
) -> None:
    x, target, linear = case(bias=bias)
    wanted = (target[:, 1:] if shift else target).reshape(-1).clamp(min=0 if options else -100)
    keywords: dict[str, Any] = {"shift": shift, "flat": True, **options}
    assert implementation("linear_cross_entropy", x, wanted, linear, **keywords) == "chunks"
    inputs = (x, *linear.parameters())
    results = []
    for function in (linear_cross_entropy, reference):
        loss = function(x, wanted, linear, **keywords)
        results.append((loss, *torch.autograd.grad(loss * 3, inputs)))
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_rows_as_they_are() -> None:
    x, target, linear = case()
    rows, wanted = x.reshape(-1, WIDTH), target.reshape(-1)
    assert implementation("linear_cross_entropy", rows, wanted, linear) == "chunks"
    expected = functional.cross_entropy(linear(rows), wanted)
    torch.testing.assert_close(linear_cross_entropy(rows, wanted, linear), expected)


def test_nothing_but_ignored_rows_is_not_a_number_as_before() -> None:
    x, target, linear = case()
    nothing = torch.full_like(target, -100).reshape(-1)
    assert linear_cross_entropy(x, nothing, linear, flat=True).isnan()


@pytest.mark.parametrize(
    "change",
    [
        lambda x, t, m: (x.bfloat16(), t, m.bfloat16(), {}),
        lambda x, t, m: (x[:1], t[: x.shape[1]], m, {}),  # no more rows than a chunk
        lambda x, t, m: (x, t, nn.Linear(WIDTH, WIDTH), {"classes": WIDTH}),
        lambda x, t, m: (x, t, m, {"classes": CLASSES // 2}),
        lambda x, t, m: (x, t, m, {"reduction": "none"}),
        lambda x, t, m: (x, t, m, {"layer": nn.CrossEntropyLoss(label_smoothing=0.1)}),
        lambda x, t, m: (x, t, m, {"layer": nn.CrossEntropyLoss(weight=torch.rand(CLASSES))}),
        lambda x, t, m: (x, t, nn.Sequential(m), {}),
        lambda x, t, m: (x, t.view(BATCH, -1), m, {}),
    ],
)
def test_what_the_kernel_is_not_given(change: Any) -> None:  # type: ignore[no-untyped-def]
    x, target, linear = case()
    x, target, linear, options = change(x, target.reshape(-1), linear)
    assert (
        implementation("linear_cross_entropy", x, target, linear, flat=True, **options)
        == "reference"
    )


def test_hooks_are_called() -> None:
    x, target, linear = case()
    calls: list[int] = []
    linear.register_forward_hook(lambda *_: calls.append(1))
    linear_cross_entropy(x, target.reshape(-1), linear, flat=True)
    assert calls == [1]


@pytest.mark.parametrize("frozen", [(), (0,), (1,), (2,), (0, 2), (1, 2)])
def test_operands_without_gradients(frozen: tuple[int, ...]) -> None:
    x, target, linear = case()
    operands = (x, linear.weight, linear.bias)
    for position in frozen:
        operands[position].requires_grad_(False)
    leaves = [operand for operand in operands if operand.requires_grad]
    gradients = [
        torch.autograd.grad(function(x, target.reshape(-1), linear, flat=True), leaves)
        for function in (linear_cross_entropy, reference)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


def test_second_derivatives_and_a_second_backward_pass() -> None:
    x, target, linear = case()
    leaves = (x, *linear.parameters())
    results = []
    for function in (linear_cross_entropy, reference):
        loss = function(x, target.reshape(-1), linear, flat=True) ** 2
        first = torch.autograd.grad(loss, leaves, create_graph=True)
        penalty = sum(gradient.square().sum() for gradient in first)
        results.append((*first, *torch.autograd.grad(penalty, leaves, retain_graph=True)))
        torch.testing.assert_close(torch.autograd.grad(loss, leaves), first)
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-6)


def test_gradients_that_are_changed_in_place_are_not_those_of_a_second_backward_pass() -> None:
    x, target, linear = case()
    loss = linear_cross_entropy(x, target.reshape(-1), linear, flat=True)
    expected = torch.autograd.grad(loss, (x, linear.weight), retain_graph=True)
    expected = tuple(gradient.clone() for gradient in expected)
    loss.backward(retain_graph=True)
    assert x.grad is not None and linear.weight.grad is not None
    for gradient in (x.grad, linear.weight.grad):
        gradient.data.zero_()
    loss.backward(retain_graph=True)
    torch.testing.assert_close((x.grad, linear.weight.grad), expected)
    for gradient in torch.autograd.grad(loss, (x, linear.weight), retain_graph=True):
        gradient.zero_()
    torch.testing.assert_close(torch.autograd.grad(loss, (x, linear.weight)), expected)


def test_tied_weights_and_hooks_where_gradients_are_differentiated() -> None:
    results = []
    for function in (linear_cross_entropy, reference):
        torch.manual_seed(0)
        table, head = nn.Embedding(CLASSES, WIDTH), nn.Linear(WIDTH, CLASSES, bias=False)
        head.weight = table.weight
        head.weight.register_hook(lambda gradient: gradient * 2)
        x = torch.tanh(table(torch.randint(CLASSES, (CHUNK + 40,))))
        loss = function(x, torch.randint(CLASSES, (CHUNK + 40,)), head)
        (gradient,) = torch.autograd.grad(loss, head.weight, create_graph=True)
        results.append((gradient, *torch.autograd.grad(gradient.square().sum(), head.weight)))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-6)


def test_another_default_dtype() -> None:
    x, target, linear = case()
    torch.set_default_dtype(torch.float64)
    try:
        loss = linear_cross_entropy(x, target.reshape(-1), linear, flat=True)
        expected = reference(x, target.reshape(-1), linear, flat=True)
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(loss, expected)


def test_many_gradients_at_once() -> None:
    x, target, linear = case()
    seeds = torch.tensor([1.0, -2.0, 0.5])
    results = [
        torch.autograd.grad(
            function(x, target.reshape(-1), linear, flat=True), x, seeds, is_grads_batched=True
        )
        for function in (linear_cross_entropy, reference)
    ]
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-6)


def test_without_gradients_nothing_is_kept_for_them() -> None:
    x, target, linear = case()
    with torch.no_grad():
        loss = linear_cross_entropy(x, target.reshape(-1), linear, flat=True)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, reference(x, target.reshape(-1), linear, flat=True).detach())


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite(number: float) -> None:
    x, target, linear = case()
    with torch.no_grad():
        x[0, 3, 2] = number  # a row that is ignored
        x[2, 5, 1] = number
    results = []
    for function in (linear_cross_entropy, reference):
        loss = function(x, target.reshape(-1), linear, flat=True, reduction="sum")
        results.append((loss, *torch.autograd.grad(loss, (x, linear.weight))))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("ignored", [1, CHUNK * BATCH])
def test_a_gradient_of_nan_reaches_no_ignored_row(ignored: int) -> None:
    x, target, linear = case()
    target = target.reshape(-1).clamp(min=0)
    target[:ignored] = -100
    results = []
    for function in (linear_cross_entropy, reference):
        loss = function(x, target, linear, flat=True, reduction="sum")
        results.append(
            torch.autograd.grad(loss, (x, *linear.parameters()), torch.tensor(float("nan")))
        )
    torch.testing.assert_close(*results, equal_nan=True)


def test_a_class_that_does_not_exist_is_an_error_as_before() -> None:
    x, target, linear = case()
    target[1, 1] = CLASSES
    with pytest.raises(IndexError, match="out of bounds"):
        linear_cross_entropy(x, target.reshape(-1), linear, flat=True)


def test_compiled_and_exported_it_is_the_composition() -> None:
    x, target, linear = case()
    compiled = torch.compile(linear_cross_entropy, backend="eager", fullgraph=True)
    expected = reference(x, target.reshape(-1), linear, flat=True)
    torch.testing.assert_close(compiled(x, target.reshape(-1), linear, flat=True), expected)


def test_training_takes_less_memory() -> None:
    class Head(nn.Module):
        def __init__(self, loss: Callable[..., Any]) -> None:
            super().__init__()
            self.head, self.of = nn.Linear(32, 4000), loss

        def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return self.of(x, target, self.head)

    call: Call = (torch.randn(2048, 32), torch.randint(0, 4000, (2048,))), {}
    before, after = (
        peak(step(Head(function), [call], True), torch.device("cpu"))
        for function in (reference, linear_cross_entropy)
    )
    assert after < 0.4 * before


@pytest.mark.skipif(DEVICE not in ("", "cpu"), reason="documented for CPU")
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("number", [float("inf"), -float("inf"), float("nan")])
def test_a_gradient_of_the_loss_that_is_not_finite(number: float, reduction: str) -> None:
    x, target, linear = case()
    inputs = (x, *linear.parameters())
    results = []
    for function in (linear_cross_entropy, reference):
        loss = function(x, target.reshape(-1), linear, flat=True, reduction=reduction)
        results.append(torch.autograd.grad(loss, inputs, torch.tensor(number)))
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, equal_nan=True)


@pytest.mark.parametrize("changed", ["weight", "bias"])
def test_a_change_of_a_parameter_is_no_error_where_the_composition_does_not_keep_it(
    changed: str,
) -> None:
    results = []
    for function in (linear_cross_entropy, reference):
        x, target, linear = case()
        loss = function(x.detach(), target.reshape(-1), linear, flat=True)
        with torch.no_grad():
            getattr(linear, changed).mul_(2)
        results.append(torch.autograd.grad(loss, [*linear.parameters()]))
    torch.testing.assert_close(*results)


def test_a_change_of_a_parameter_is_an_error_for_second_derivatives() -> None:
    x, target, linear = case()
    loss = linear_cross_entropy(x, target.reshape(-1), linear, flat=True)
    with torch.no_grad():
        linear.bias.mul_(2)
    with pytest.raises(RuntimeError, match="second derivatives need it unchanged"):
        torch.autograd.grad(loss, x, create_graph=True)
