"""Test the steps of LSTM cells that are computed at once against steps one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from regraft.ops import REFERENCES, implementation, recurrent_steps  # noqa: E402

reference = REFERENCES["recurrent_steps"]


@pytest.fixture(autouse=True)
def forced_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run kernels for few steps, too."""
    monkeypatch.setenv("REGRAFT_KERNELS", "always")


def operands(length: int = 5, dim: int = 1, **options: Any) -> tuple[Any, Any, Any]:
    """Return a cell, its input and a state."""
    torch.manual_seed(length)
    cell = nn.LSTMCell(3, 4, **options)
    shape = [2, 3]
    shape.insert(dim, length)
    x = torch.randn(shape, requires_grad=True)
    return cell, x, tuple(torch.randn(2, 2, 4))


def run(op: Any, x: Any, cell: Any, dim: int, state: Any, steps: Iterable[int]) -> tuple[Any, ...]:
    """Return the hidden states of a loop, and its last cell state."""
    next_state, states = op(x, cell, dim), []
    for step in steps:
        state = next_state(step, state)
        states.append(state[0])
    return torch.stack(states), state[1]


@pytest.mark.parametrize("length", [1, 2, 5, 63, 64, 65, 200])
def test_results_and_derivatives_of_all_lengths(length: int) -> None:
    cell, x, state = operands(length)
    inputs = (x, *cell.parameters())
    runs = []
    for op in (recurrent_steps, reference):
        states, cell_state = run(op, x, cell, 1, state, range(length))
        loss = states.square().mean() + cell_state.square().mean()
        first = torch.autograd.grad(loss, inputs, create_graph=True)
        second = torch.autograd.grad(sum(grad.square().sum() for grad in first), inputs)
        with torch.no_grad():
            others = run(op, x, cell, 1, state, range(length))
        runs.append((states, cell_state, *others, *first, *second))
    for left, right in zip(*runs, strict=True):
        torch.testing.assert_close(left, right, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("steps", [range(5), range(4, -1, -1), range(3), (0, 1, 1, 2), (3, 0, 1)])
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("options", [{}, {"bias": False}], ids=str)
def test_dimensions_and_orders(dim: int, steps: Iterable[int], options: dict[str, Any]) -> None:
    cell, x, state = operands(dim=dim, **options)
    assert implementation("recurrent_steps", x, cell, dim) == "torch-native"
    left, right = (run(op, x, cell, dim, state, steps) for op in (recurrent_steps, reference))
    torch.testing.assert_close(left[0], right[0])
    if list(steps) in ([*range(5)], [*range(4, -1, -1)]):
        torch.testing.assert_close(left[1], right[1])


def test_a_state_of_zeros() -> None:
    cell, x, _ = operands()
    left, right = (run(op, x, cell, 1, None, range(5)) for op in (recurrent_steps, reference))
    torch.testing.assert_close(left, right)


def test_a_cell_state_of_the_steps_between_is_not_there() -> None:
    cell, x, state = operands()
    result = recurrent_steps(x, cell, 1)(0, state)
    with pytest.raises(RuntimeError, match="only the last one"):
        _ = result[1].shape


def test_hidden_states_may_be_changed_in_place_after_the_loop() -> None:
    cell, x, state = operands()
    for is_recorded in (False, True):
        with torch.set_grad_enabled(is_recorded):
            next_state, states = recurrent_steps(x, cell, 1), []
            for step in range(5):
                state = next_state(step, state)
                states.append(state[0])
            expected = states[3].clone()
            state[0].mul_(2)
            state[1].mul_(2)
            torch.testing.assert_close(states[3], expected)
            assert not any(hidden._is_view() for hidden in states)


@pytest.mark.parametrize(
    "change",
    [
        lambda x, _: x.detach().add_(1),
        lambda _, cell: cell.weight_hh.detach().mul_(2),
        lambda _, cell: setattr(cell, "weight_hh", nn.Parameter(cell.weight_hh * 2)),
        lambda _, cell: cell.bias_ih.requires_grad_(False),
    ],
)
def test_changes_between_steps_are_seen(change: Callable[[Any, Any], Any]) -> None:
    cell, x, state = operands()
    next_state = recurrent_steps(x, cell, 1)
    state = next_state(0, state)
    change(x, cell)
    with pytest.raises(RuntimeError, match="has changed between steps"):
        next_state(1, state)


def test_a_state_that_changed_in_place_is_seen() -> None:
    cell, x, state = operands()
    next_state = recurrent_steps(x, cell, 1)
    state = next_state(0, state)
    state[0].detach().mul_(2)
    with pytest.raises(RuntimeError, match="has changed between steps"):
        next_state(1, state)


def test_arguments_for_which_steps_are_computed_one_after_the_other() -> None:
    cell, x, state = operands()

    class Cell(nn.LSTMCell):
        pass

    hooked = nn.LSTMCell(3, 4)
    hooked.register_forward_hook(lambda *_: None)
    others: tuple[tuple[Any, Any, int], ...] = (
        (x, Cell(3, 4), 1),
        (x, hooked, 1),
        (x.double(), nn.LSTMCell(3, 4).double(), 1),
        (list(x.unbind(0)), cell, 0),
        (x[:0], cell, 1),
        (x, nn.LSTMCell(7, 4), 1),
        (x, nn.GRUCell(3, 4), 1),
    )
    for values, other, dim in others:
        assert implementation("recurrent_steps", values, other, dim) == "reference"
    assert implementation("recurrent_steps", x, cell, 1) == "torch-native"
    with torch.autocast("cpu", torch.bfloat16):
        assert implementation("recurrent_steps", x, cell, 1) == "reference"
    with torch.backends.mkldnn.flags(enabled=False):
        assert implementation("recurrent_steps", x, cell, 1) == "reference"
    with pytest.raises(RuntimeError):
        recurrent_steps(x, nn.LSTMCell(7, 4), 1)(0, state)
    with pytest.raises(RuntimeError):
        recurrent_steps(x, cell, 1)(0, (state[0], state[1][:1]))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), 1e30])
def test_numbers_that_are_not_finite(number: float) -> None:
    cell, x, state = operands()
    x = x.detach()
    x[1, 2, 0] = number
    left, right = (run(op, x, cell, 1, state, range(5)) for op in (recurrent_steps, reference))
    torch.testing.assert_close(left, right, equal_nan=True)


def test_modes() -> None:
    cell, x, state = operands()
    expected = run(reference, x, cell, 1, state, range(5))[0]
    with torch.inference_mode():
        result = run(recurrent_steps, x, cell, 1, state, range(5))[0]
        torch.testing.assert_close(result, expected.detach())

    def total(values: Any) -> Any:
        return run(recurrent_steps, values, cell, 1, state, range(5))[0].sum()

    (grad,) = torch.autograd.grad(total(x), x)
    torch.testing.assert_close(torch.func.grad(total)(x.detach()), grad)


def test_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGRAFT_KERNELS")
    for length, name in ((7, "reference"), (8, "torch-native")):
        cell, x, _ = operands(length)
        assert implementation("recurrent_steps", x, cell, 1) == name


def test_slices_that_the_loop_leaves_out_have_no_part_in_gradients() -> None:
    cell, x, state = operands()
    for number in (float("nan"), float("inf")):
        x.data[:, 3:] = number
        runs = []
        for op in (recurrent_steps, reference):
            next_state, last = op(x, cell, 1), state
            for step in range(3):
                last = next_state(step, last)
            runs.append((last[0], *torch.autograd.grad(last[0].sum(), (x, *cell.parameters()))))
        torch.testing.assert_close(*runs)


def test_the_last_hidden_state_depends_on_the_last_cell_state() -> None:
    cell, x, state = operands()
    grads = []
    for op in (recurrent_steps, reference):
        next_state, last = op(x, cell, 1), state
        for step in range(5):
            last = next_state(step, last)
        grads.append(torch.autograd.grad(last[0].sum(), last[1])[0])
    torch.testing.assert_close(*grads)


def test_derivatives_where_a_loop_leaves_the_order() -> None:
    cell, x, state = operands()
    for steps in (range(0, 5, 2), (0, 0, 1, 1, 2), (0, -1, -2), (1, 0, 1, 2, 4)):
        runs = []
        for op in (recurrent_steps, reference):
            next_state, last, states = op(x, cell, 1), state, []
            for step in steps:
                last = next_state(step, last)
                states.append(last[0])
            result = torch.stack(states)
            grads = torch.autograd.grad(result.square().sum(), (x, *cell.parameters()))
            runs.append((result, *grads))
        torch.testing.assert_close(*runs)


def weight_as_attribute(cell: Any) -> None:
    """Put a tensor that is no parameter into the place of a parameter."""
    weight = cell._parameters.pop("weight_hh")
    cell.weight_hh = weight.detach() * 0.5


@pytest.mark.parametrize(
    "change",
    [
        weight_as_attribute,
        lambda cell: cell.__dict__.update(bias_hh=cell.bias_hh.detach() * 2),
        lambda cell: setattr(cell, "bias_hh", None),
        lambda cell: setattr(cell, "weight_hh", nn.Parameter(torch.randn(16, 5))),
        lambda cell: setattr(cell, "hidden_size", 5),
    ],
)
def test_cells_whose_parameters_are_others(change: Callable[[Any], Any]) -> None:
    cell, x, state = operands()
    change(cell)
    assert implementation("recurrent_steps", x, cell, 1) == "reference"
    messages: list[Any] = []
    for op in (recurrent_steps, reference):
        try:
            messages.append(run(op, x, cell, 1, state, range(5)))
        except RuntimeError as error:
            messages.append(str(error))
    if isinstance(messages[1], str):
        assert messages[0] == messages[1]
    else:
        torch.testing.assert_close(*messages)


@pytest.mark.parametrize("has_bias", [False, True])
def test_the_attribute_that_tells_of_biases_is_not_read(has_bias: bool) -> None:
    cell, x, state = operands(bias=has_bias)
    cell.bias = not has_bias
    left, right = (run(op, x, cell, 1, state, range(5)) for op in (recurrent_steps, reference))
    torch.testing.assert_close(left, right)


def test_a_tensor_of_inference_mode_outside_of_it() -> None:
    cell, _, state = operands()
    with torch.inference_mode():
        x = torch.randn(2, 5, 3)
    assert implementation("recurrent_steps", x, cell, 1) == "reference"
    with pytest.raises(RuntimeError, match="Inference tensors"):
        run(recurrent_steps, x, cell, 1, state, range(5))
