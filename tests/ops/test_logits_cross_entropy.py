"""Test the chunks of `logits_cross_entropy` against the composition, and the choice between
them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from regraft.benchmarking.steps import peak  # noqa: E402
from regraft.ops import implementation, logits_cross_entropy  # noqa: E402

ROWS, CLASSES = 7, 300_000  # several chunks of one row
IMPLEMENTATION = "logits_cross_entropy"


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the chunks whatever the size of the logits."""
    monkeypatch.setenv("REGRAFT_KERNELS", "always")


def case(rows: int = ROWS, classes: int = CLASSES, dtype: Any = torch.float32) -> Any:
    """Return logits with gradients, and their targets, one of which is ignored."""
    torch.manual_seed(0)
    x = (4 * torch.randn(rows, classes)).to(dtype).requires_grad_()
    target = torch.randint(1, classes, (rows,))
    target[1] = -100
    return x, target


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"reduction": "sum"},
        {"ignore_index": 3},
        {"layer": nn.CrossEntropyLoss()},
        {"layer": nn.CrossEntropyLoss(ignore_index=2, reduction="sum")},
    ],
)
@pytest.mark.parametrize("sizes", [(ROWS, CLASSES), (1500, 1000), (2, 3)])
def test_results_and_gradients(sizes: tuple[int, int], options: dict[str, Any], dtype: Any) -> None:
    x, target = case(*sizes, dtype=dtype)
    if options and options != {"reduction": "sum"}:
        target = torch.where(target < 0, 3 % sizes[1], target)
    if isinstance(options.get("layer"), nn.CrossEntropyLoss):
        target[0] = options["layer"].ignore_index
    assert implementation(IMPLEMENTATION, x, target, **options) == "chunks"
    loss = logits_cross_entropy(x, target, **options)
    layer = options.get("layer", lambda x, target: functional.cross_entropy(x, target, **options))
    expected = layer(x, target)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(
        torch.autograd.grad(loss * 3, x), torch.autograd.grad(expected * 3, x)
    )


@pytest.mark.slow
def test_second_derivatives_and_a_second_backward_pass() -> None:
    x, target = case(40, 50, torch.float64)
    results = []
    for function in (logits_cross_entropy, functional.cross_entropy):
        loss = function(x, target) ** 2
        (first,) = torch.autograd.grad(loss, x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x, retain_graph=True)
        torch.testing.assert_close(torch.autograd.grad(loss, x)[0], first)
        results.append((first, second))
    torch.testing.assert_close(*results)
    torch.autograd.gradgradcheck(lambda x: logits_cross_entropy(x, target), (x,))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("row", [0, 1])
def test_numbers_that_are_not_finite(row: int, number: float) -> None:
    x, target = case(5, 9)
    with torch.no_grad():
        x[row, 4] = number
    results = []
    for function in (logits_cross_entropy, functional.cross_entropy):
        loss = function(x, target)
        results.append((loss, *torch.autograd.grad(loss, x)))
    torch.testing.assert_close(*results, equal_nan=True)


def test_nothing_but_ignored_rows() -> None:
    x, _ = case(5, 9)
    target = torch.full((5,), -100)
    loss = logits_cross_entropy(x, target)
    assert loss.isnan()
    (gradient,) = torch.autograd.grad(loss, x)
    (expected,) = torch.autograd.grad(functional.cross_entropy(x, target), x)
    torch.testing.assert_close(gradient, expected, equal_nan=True)


def test_logits_in_another_layout() -> None:
    x, target = case(6, 8)
    for logits in (
        x.t().contiguous().t(),
        torch.stack([x, x], 1)[:, 0],
        x[:, None, :].flatten(0, 1),
    ):
        loss, expected = logits_cross_entropy(logits, target), functional.cross_entropy(x, target)
        torch.testing.assert_close(torch.autograd.grad(loss, x), torch.autograd.grad(expected, x))


def test_gradients_of_the_logits_themselves() -> None:
    x, target = case(6, 8)
    seen: list[Any] = []
    logits = x * 1
    logits.register_hook(seen.append)
    (logits_cross_entropy(logits, target) + logits.sum()).backward()
    (expected,) = torch.autograd.grad(functional.cross_entropy(x, target) + x.sum(), x)
    torch.testing.assert_close(seen, [expected])


def test_logits_that_are_changed_before_the_backward_pass_are_an_error() -> None:
    x, target = case(6, 8)
    logits = x * 1
    loss = logits_cross_entropy(logits, target)
    logits.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("change", [lambda y: y.data.mul_(2), lambda y: y.detach().numpy().fill(1)])
def test_changes_that_pytorch_does_not_see_are_an_error(change: Any) -> None:
    x, target = case(6, 8)
    logits = x * 1
    loss = logits_cross_entropy(logits, target)
    change(logits)
    with pytest.raises(RuntimeError, match="the logits were changed"):
        loss.backward()


def test_hooks_run_once_where_gradients_are_differentiated() -> None:
    results = []
    for function in (logits_cross_entropy, functional.cross_entropy):
        x, target = case(6, 8)
        logits = x * 1
        logits.register_hook(lambda gradient: gradient * 2)
        logits.retain_grad()
        function(logits, target).backward(create_graph=True)
        results.append((x.grad, logits.grad))
    torch.testing.assert_close(*results)


def test_many_gradients_at_once() -> None:
    x, target = case(6, 8)
    seeds = torch.tensor([1.0, -2.0, 0.5])
    results = [
        torch.autograd.grad(function(x, target), x, seeds, is_grads_batched=True)
        for function in (logits_cross_entropy, functional.cross_entropy)
    ]
    torch.testing.assert_close(*results)


def test_a_class_that_does_not_exist_is_an_error_as_before() -> None:
    x, target = case(6, 8)
    target[0] = 8
    with pytest.raises(IndexError, match="out of bounds"):
        logits_cross_entropy(x, target)


@pytest.mark.parametrize(
    "change",
    [
        lambda x, t: (x.bfloat16(), t, {}),
        lambda x, t: (x, torch.softmax(x, 1), {}),
        lambda x, t: (x.t()[None], t[None, :], {}),
        lambda x, t: (x[0], t[0], {}),
        lambda x, t: (x, t, {"reduction": "none"}),
        lambda x, t: (x, t, {"layer": nn.CrossEntropyLoss(label_smoothing=0.1)}),
        lambda x, t: (x, t, {"layer": nn.CrossEntropyLoss(weight=torch.rand(CLASSES))}),
        lambda x, t: (x, t, {"layer": nn.CrossEntropyLoss(reduction="none")}),
        lambda x, t: (x[:0], t[:0], {}),
    ],
)
def test_what_the_chunks_are_not_given(change: Any) -> None:
    x, target, options = change(*case())
    assert implementation(IMPLEMENTATION, x, target, **options) == "reference"


def test_few_logits_are_not_looked_at_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGRAFT_KERNELS")
    assert implementation(IMPLEMENTATION, *case(20, 1000)) == "reference"
    assert implementation(IMPLEMENTATION, *case(300, 30_000)) == "chunks"


def test_hooks_of_the_layer_are_called() -> None:
    x, target = case(6, 8)
    layer, calls = nn.CrossEntropyLoss(), []
    layer.register_forward_hook(lambda *_: calls.append(1))
    logits_cross_entropy(x, target, layer=layer)
    assert calls == [1]


def test_under_autocast_compiled_and_transformed_it_is_the_composition() -> None:
    x, target = case(6, 8)
    expected = functional.cross_entropy(x, target)
    with torch.autocast("cpu"):
        assert implementation(IMPLEMENTATION, x, target) == "reference"
    compiled = torch.compile(logits_cross_entropy, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, target), expected)
    gradient = torch.func.grad(logits_cross_entropy)(x.detach(), target)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, x)[0])


def test_training_takes_less_memory() -> None:
    x, target = case(256, 30_000)

    def peak_of(function: Any) -> int:
        return peak(lambda: torch.autograd.grad(function(x, target), x), torch.device("cpu"))

    assert peak_of(logits_cross_entropy) < 0.5 * peak_of(functional.cross_entropy)
