"""Test that postponed tensors behave as the tensors that they stand for, and that a loss by rows is
the loss of all rows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F

from regraft.ops import implementation, postponed_linear
from regraft.ops.postponed import PostponedTensor
from regraft.ops.postponed_logits import postpone_logits
from regraft.ops.rows_loss import rows_at_once

CLASSES = 37


@pytest.fixture(params=[True, False], ids=["bias", "no bias"])
def head(request: pytest.FixtureRequest) -> nn.Linear:
    """Return a Linear layer with and without bias."""
    torch.manual_seed(0)
    return nn.Linear(8, CLASSES, bias=request.param)


@pytest.fixture
def x() -> Any:
    """Return a random input with gradients."""
    return torch.randn(2, 9, 8, generator=torch.Generator().manual_seed(1)).requires_grad_()


LABELS = torch.randint(0, CLASSES, (2, 9), generator=torch.Generator().manual_seed(2))
LABELS[0, 3] = -100


def causal(logits: Any, labels: Any = LABELS, number: Any = None, ignore_index: int = -100) -> Any:
    """Return the loss of causal language models in transformers."""
    logits = logits.float()
    labels = F.pad(labels, (0, 1), value=ignore_index)[..., 1:].contiguous()
    rows, labels = logits.view(-1, CLASSES), labels.view(-1).to(logits.device)
    reduction = "sum" if number is not None else "mean"
    loss = F.cross_entropy(rows, labels, ignore_index=ignore_index, reduction=reduction)
    return loss / number if number is not None else loss


def written(logits: Any) -> Any:
    """Return a loss after writing into a view, which changes its base."""
    rows = logits.view(-1, CLASSES)
    rows[3] = 0.0
    return logits.square().mean() + rows.sum()


def changed(logits: Any) -> Any:
    """Return a loss after setting the logits to zero."""
    before = logits * 2.0
    logits.zero_()
    return before.square().mean() + logits.sum()


def watched(logits: Any) -> Any:
    """Return a loss that was there before hooks that see and change its gradients."""
    rows = (logits[:, 1:] * 2.0).reshape(-1, CLASSES)
    loss = F.cross_entropy(rows, LABELS[:, 1:].reshape(-1))
    logits.register_hook(lambda slope: slope * 3)
    logits.retain_grad()
    loss.backward(retain_graph=True)
    return loss + logits.grad.square().sum().detach()


def turned(logits: Any) -> Any:
    """Return a loss after changes of the shape in place."""
    logits.transpose_(0, 1)
    assert (logits.shape, len(logits), logits.size(1)) == ((9, 2, CLASSES), 9, 2)
    return logits.square().mean()


def transformed(logits: Any) -> Any:
    """Return a loss after a transform of `torch.func`, whose tensors are gone."""
    torch.func.jvp(lambda y: y * logits, (torch.ones(9, CLASSES),), (torch.ones(9, CLASSES),))
    return logits.square().mean()


FUSED: dict[str, Callable[[Any], Any]] = {
    "causal": causal,
    "sum over a number": lambda y: causal(y, number=torch.tensor(7)),
    "another ignored class": lambda y: causal(y, LABELS.clamp(0), ignore_index=0),
    "scaled and capped": lambda y: causal(torch.tanh(y * 0.5 / 3.0) * 3.0),
    "last position left out": lambda y: F.cross_entropy(
        y[..., :-1, :].contiguous().view(-1, CLASSES), LABELS[..., 1:].reshape(-1)
    ),
    "rows of a slice": lambda y: F.cross_entropy(
        y[:, 2:].reshape(-1, CLASSES), LABELS[:, 2:].reshape(-1)
    ),
    "a layer": lambda y: nn.CrossEntropyLoss()(y.reshape(-1, CLASSES), LABELS.view(-1)),
    "every row ignored": lambda y: causal(y, torch.full_like(LABELS, -100)),
}
COMPUTED: dict[str, Callable[[Any], Any]] = {
    "smoothed": lambda y: F.cross_entropy(
        y.view(-1, CLASSES), LABELS.view(-1), label_smoothing=0.1
    ),
    "weighted": lambda y: F.cross_entropy(
        y.view(-1, CLASSES), LABELS.view(-1), torch.ones(CLASSES)
    ),
    "each row": lambda y: (
        F.cross_entropy(y.view(-1, CLASSES), LABELS.view(-1), reduction="none").square().mean()
    ),
    "classes left out": lambda y: F.cross_entropy(
        y[..., :30].reshape(-1, 30), LABELS.view(-1).clamp(-100, 29)
    ),
    "classes as positions": lambda y: F.cross_entropy(y.transpose(1, 2), LABELS),
    "rows of another size": lambda y: F.cross_entropy(
        y.reshape(-1, 2 * 9).t(), LABELS.view(-1).clamp(0)
    ),
    "another function": lambda y: -y.log_softmax(-1).mean(),
    "a method": lambda y: y.pow(2).mean(),
    "an operator": lambda y: (1 - y).sum(),
    "a mask": lambda y: y[LABELS > 5].sum(),
    "written over": lambda y: F.cross_entropy(y.view(-1, CLASSES).clamp_(max=0.3), LABELS.view(-1)),
    "scaled in place": lambda y: causal(y.mul_(0.5)),
    "a view written into": written,
    "a cast before it is changed": changed,
    "the loss and the logits": lambda y: causal(y) + y.sigmoid().mean(),
    "in float64": lambda y: F.cross_entropy(y.to(torch.float64).view(-1, CLASSES), LABELS.view(-1)),
    "hooks after the loss": watched,
    "turned": turned,
    "within a transformation": transformed,
    "a metric without gradients": lambda y: causal(y) * metric(y),
}


def metric(logits: Any) -> Any:
    """Return the accuracy, without gradients."""
    with torch.no_grad():
        return (logits.float().argmax(-1) == LABELS).float().mean() + 1


def run(loss: Callable[[Any], Any], logits: Any, head: nn.Linear, x: Any) -> list[Any]:
    """Return the loss and the gradients of its leaves."""
    result = loss(logits)
    return [result, *torch.autograd.grad(result * 1.5, [x, *head.parameters()])]


@pytest.mark.parametrize("loss", [*FUSED.values(), *COMPUTED.values()], ids=[*FUSED, *COMPUTED])
def test_losses_and_gradients(loss: Callable[[Any], Any], head: nn.Linear, x: Any) -> None:
    ours = run(loss, postpone_logits(x, head.weight, head.bias), head, x)
    theirs = run(loss, head(x), head, x)
    for actual, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(actual, expected, equal_nan=True)


@pytest.mark.parametrize("loss", FUSED.values(), ids=FUSED)
def test_the_logits_are_never_there(loss: Callable[[Any], Any], head: nn.Linear, x: Any) -> None:
    logits = postpone_logits(x, head.weight, head.bias)
    run(loss, logits, head, x)
    assert isinstance(logits, PostponedTensor)
    assert logits.record.value is None


def test_a_few_rows_at_a_time(head: nn.Linear, x: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    linear = F.linear

    def counted(rows: Any, *parameters: Any) -> Any:
        sizes.append(len(rows))
        return linear(rows, *parameters)

    monkeypatch.setattr(F, "linear", counted)
    causal(postpone_logits(x, head.weight, head.bias))
    assert sizes == [4, 4, 4, 4, 2]
    assert rows_at_once(16384, 4096, 32000) == 2048


def test_it_is_a_tensor_with_the_shape_and_the_value_of_the_output(head: nn.Linear, x: Any) -> None:
    logits, wanted = postpone_logits(x, head.weight, head.bias), head(x)
    assert isinstance(logits, torch.Tensor) and torch.is_tensor(logits) and logits.requires_grad
    assert (logits.shape, logits.dtype, logits.device, len(logits)) == (
        wanted.shape,
        wanted.dtype,
        wanted.device,
        2,
    )
    assert logits.record.value is None
    assert torch.equal(logits, wanted) and torch.equal(
        copy.deepcopy(logits.detach()), wanted.detach()
    )
    assert logits.stride() == wanted.stride() and str(logits) == str(wanted)
    assert type(logits.cpu()) is torch.Tensor


class Doubled(torch.autograd.Function):
    """A function of somebody else's, which may take the tensor as it is."""

    @staticmethod
    def forward(ctx: Any, y: Any) -> Any:
        return (y * 2).sum()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return (gradient * 2).expand(2, 9, CLASSES)


def test_gradients_of_the_output_itself(head: nn.Linear, x: Any) -> None:
    ours = run(
        lambda y: Doubled.apply(y.float()), postpone_logits(x, head.weight, head.bias), head, x
    )
    for actual, expected in zip(ours, run(lambda y: (y * 2).sum(), head(x), head, x), strict=True):
        torch.testing.assert_close(actual, expected)


def test_what_was_changed_in_between_is_an_error(head: nn.Linear, x: Any) -> None:
    logits = postpone_logits(x, head.weight, head.bias)
    causal(logits).backward()
    torch.optim.SGD(head.parameters(), 0.1).step()
    with pytest.raises(RuntimeError, match="changed in place"):
        logits.argmax(-1)
    with pytest.raises(RuntimeError, match="changed in place"):
        causal(logits)


def test_what_an_optimizer_wrote_without_a_version_is_an_error(head: nn.Linear, x: Any) -> None:
    logits = postpone_logits(x, head.weight, head.bias)
    causal(logits).backward()
    assert logits.record.value is None
    head.weight.data.mul_(0.5)
    with pytest.raises(RuntimeError, match="changed in place"):
        logits.argmax(-1)


def test_freed_parameters_are_an_error(head: nn.Linear, x: Any) -> None:
    logits = postpone_logits(x, head.weight, head.bias)
    head.weight.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="changed in place"):
        logits.argmax(-1)


def test_gradients_for_the_logits_of_a_loss_that_is_there_are_an_error(
    head: nn.Linear, x: Any
) -> None:
    logits = postpone_logits(x, head.weight, head.bias)
    loss = causal(logits)
    with pytest.raises(RuntimeError, match="no gradient for logits"):
        torch.autograd.grad(loss, logits, allow_unused=True, materialize_grads=True)


def test_tied_weights_add_up() -> None:
    """The layer's input is made of its weight."""
    weight = torch.randn(CLASSES, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    x = F.embedding(LABELS.clamp(0), weight)
    (ours,) = torch.autograd.grad(
        Doubled.apply(postpone_logits(x, weight, None)), weight, retain_graph=True
    )
    (theirs,) = torch.autograd.grad((F.linear(x, weight) * 2).sum(), weight)
    torch.testing.assert_close(ours, theirs)


def test_a_tensor_that_was_read_stays(head: nn.Linear, x: Any) -> None:
    logits = postpone_logits(x, head.weight, head.bias)
    copy_of_logits = logits.detach().clone()
    with torch.no_grad():
        head.weight.zero_()
    assert torch.equal(logits, copy_of_logits)


def test_there_is_no_second_derivative(head: nn.Linear, x: Any) -> None:
    with pytest.raises(RuntimeError, match="derivative for liger_backward is not implemented"):
        torch.autograd.grad(
            causal(postpone_logits(x, head.weight, head.bias)), x, create_graph=True
        )


def test_the_loss_can_be_differentiated_twice_over(head: nn.Linear, x: Any) -> None:
    loss = causal(postpone_logits(x, head.weight, head.bias))
    first, second = (torch.autograd.grad(loss, x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_parameters_that_do_not_learn(head: nn.Linear, x: Any) -> None:
    head.requires_grad_(False)
    (ours,) = torch.autograd.grad(causal(postpone_logits(x, head.weight, head.bias)), x)
    (theirs,) = torch.autograd.grad(causal(head(x)), x)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("half", [False, True], ids=["float32", "half"])
def test_under_autocast(head: nn.Linear, x: Any, half: bool) -> None:
    """The loss in float32 of logits in half precision; the head's gradients are there also where
    both are used."""
    if half:
        x = x.detach().bfloat16().requires_grad_()
    losses: tuple[Callable[[Any], Any], ...] = (
        causal,
        lambda y: causal(y) + y.float().sigmoid().mean(),
        lambda y: y.float().sigmoid().mean(),
    )
    projections: tuple[Callable[[], Any], ...] = (
        lambda: postpone_logits(x, head.weight, head.bias),
        lambda: head(x),
    )
    for loss in losses:
        runs = []
        for make in projections:
            with torch.autocast("cpu", torch.bfloat16):
                logits = make()
                assert logits.dtype == torch.bfloat16
                result = loss(logits)
            runs.append([result, *torch.autograd.grad(result, [x, *head.parameters()])])
        for actual, expected in zip(*runs, strict=True):
            torch.testing.assert_close(actual, expected, rtol=2e-2, atol=2e-3)
    assert postpone_logits(x, head.weight.bfloat16(), None).record.value is None


def test_a_loss_under_another_autocast(head: nn.Linear, x: Any) -> None:
    logits = postpone_logits(x, head.weight, head.bias)
    with torch.autocast("cpu", torch.bfloat16):
        result = causal(logits)
    assert logits.record.value is not None
    torch.testing.assert_close(result, causal(head(x)))


def test_a_class_that_is_not_there(head: nn.Linear, x: Any) -> None:
    with pytest.raises(RuntimeError, match="out of bounds"):
        causal(postpone_logits(x, head.weight, head.bias), torch.full_like(LABELS, CLASSES))


def test_where_no_kernel_runs_the_layer_is_called(
    head: nn.Linear, x: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert implementation("postponed_linear", x, head) == "reference"
    assert type(postponed_linear(x, head)) is torch.Tensor
