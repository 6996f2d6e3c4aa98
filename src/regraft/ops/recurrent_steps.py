"""The steps of a loop that calls a recurrent cell: `h, c = cell(x[:, t], (h, c))`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from regraft.ops.plain import (
    are_kernels_forced,
    are_tensors,
    can_read,
    is_plain,
    versions_of,
)
from regraft.ops.slices_along import slices_along_reference

# The steps of the first run; each further run has twice as many, up to the last slice.
_FIRST_RUN = 64
_FEWEST_RUN_STEPS = 8


def recurrent_steps(x: torch.Tensor, cell: Any, dim: int) -> Callable[[int, Any], Any]:
    """Return what gives `cell(x[:, i], state)` (for `dim` 1) when it is called with `i` and
    `state`.

    Shapes: x (batch, steps, features) for `dim` 1; the cell is an `LSTMCell` or a `GRUCell`. Where
    a loop goes through the slices in their order or backwards and hands over the last result as it
    is, the steps that follow are computed ahead, 64 or more at once, by the layer of several steps
    with the cell's own parameters. Of an LSTM that has no cell states but the last one of a run: in
    the other results a placeholder stands for the cell state, which only the next step takes. Any
    other call computes its own step.
    """
    if recurrent_steps_implementation(x, cell, dim) != "torch-native":
        return recurrent_steps_reference(x, cell, dim)
    return _RecurrentSteps(x, cell, dim)


def recurrent_steps_reference(x: torch.Tensor, cell: Any, dim: int) -> Callable[[int, Any], Any]:
    """Return a function that computes the step that the op replaces."""
    slices = slices_along_reference(x, dim)
    return lambda step, state: cell(slices[step], state)


def recurrent_steps_implementation(x: torch.Tensor, cell: Any, dim: int) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    if not are_tensors(x) or not can_read() or torch.is_autocast_enabled("cpu"):
        return "reference"
    if x.layout != torch.strided or x.device.type != "cpu" or x.dtype != torch.float32:
        return "reference"
    if x.dim() != 3 or not x.numel() or not _is_plain_cell(cell):
        return "reference"
    fewest = 1 if are_kernels_forced() else _FEWEST_RUN_STEPS
    is_fitting = x.shape[2 if dim < 2 else 1] == cell.input_size and x.shape[dim] >= fewest
    return "torch-native" if is_fitting and 0 <= dim <= 2 else "reference"


def _is_plain_cell(cell: Any) -> bool:
    """Return whether a module is a cell of PyTorch with parameters in float32 on a CPU, and an LSTM
    has a layer that is faster than its steps."""
    is_lstm = type(cell) is nn.LSTMCell
    if not is_plain(cell, nn.LSTMCell) and not is_plain(cell, nn.GRUCell):
        return False
    if is_lstm and not (torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled):
        return False
    if is_lstm and torch.get_float32_matmul_precision() != "highest":
        return False
    weights = _weights_of(cell)
    return all(weight.dtype == torch.float32 and weight.device.type == "cpu" for weight in weights)


def _weights_of(cell: Any) -> tuple[torch.Tensor, ...]:
    """Return the parameters of a cell in the order in which layers take them."""
    weights = (cell.weight_ih, cell.weight_hh)
    return (*weights, cell.bias_ih, cell.bias_hh) if cell.bias else weights


class _Placeholder:
    """What stands for a cell state that was not computed."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("the cell state of a step is read, but only the last one was computed")


class _RecurrentSteps:
    """The steps of one loop. The hidden states that were computed ahead stay in `_ahead`, the next
    one last; they hold as long as nothing has changed in place since, and each call hands over the
    result of the call before."""

    def __init__(self, x: torch.Tensor, cell: Any, dim: int) -> None:
        self._x, self._cell, self._dim = x, cell, dim
        self._is_lstm = type(cell) is nn.LSTMCell
        self._count = x.shape[dim]
        self._state_shape = (x.shape[1 if dim == 0 else 0], cell.hidden_size)
        self._slices = slices_along_reference(x, dim)
        self._last: Any = None
        self._step = self._next = self._direction = self._size = 0
        self._placeholder = _Placeholder()
        self._ahead: list[torch.Tensor] = []
        self._parts: list[torch.Tensor] = []
        self._final_cell_state: Any = None
        self._conditions: tuple[Any, ...] = ()

    def __call__(self, step: int, state: Any) -> Any:
        conditions = self._conditions_now()
        is_next = type(step) is int and step == self._next and conditions == self._conditions
        is_next = is_next and self._last is not None and self._is_last(state)
        if is_next and self._ahead:
            return self._take_ahead(step)
        if type(state) is tuple and state and state[-1] is self._placeholder:
            raise RuntimeError("the cell or its input has changed between steps of a loop")
        if type(step) is int and self._can_run(step, state, is_next):
            self._run(state)
            self._conditions = conditions
            return self._take_ahead(step)
        self._ahead, self._parts, self._last = [], [], None
        result = self._cell(self._slices[step], state)
        if type(step) is int:
            self._remember(step, result)
            self._conditions = conditions
        return result

    def _conditions_now(self) -> tuple[Any, ...]:
        """Return what has to be equal in all steps of a run."""
        operands = (self._x, *_weights_of(self._cell))
        needs = (operand.requires_grad for operand in operands)
        return torch.is_grad_enabled(), *map(id, operands), *versions_of(operands), *needs

    def _is_last(self, state: Any) -> bool:
        """Return whether a state is the last result, unchanged."""
        last, version = self._last
        if not self._is_lstm:
            return state is last and versions_of((last,)) == version
        is_pair = type(state) is tuple and len(state) == 2
        return is_pair and state[0] is last[0] and state[1] is last[1] and (
            versions_of((last[0],)) == version
        )

    def _remember(self, step: int, result: Any) -> None:
        """Keep the result of a step."""
        hidden = result[0] if self._is_lstm else result
        self._last = result, versions_of((hidden,))
        self._step, self._next = step, step + self._direction

    def _take_ahead(self, step: int) -> Any:
        """Return the result of a step that was computed ahead."""
        result: Any = self._ahead.pop()
        if self._is_lstm:
            result = result, self._placeholder if self._ahead else self._final_cell_state
        self._remember(step, result)
        return result

    def _can_run(self, step: int, state: Any, is_next: bool) -> bool:
        """Return whether `_parts` ends in the input of a run from a step on: what follows the runs
        until here, or all slices of a loop that begins at either end."""
        if not is_next or not self._parts:
            self._parts = []
            self._direction = int(step == 0) - int(step == self._count - 1)
            if not self._direction or not self._fits_cell(state):
                return False
            if recurrent_steps_implementation(self._x, self._cell, self._dim) == "reference":
                return False
            slices = self._x.movedim(self._dim, 0)
            slices = slices.flip(0) if self._direction < 0 else slices
            self._parts = list(slices.split(_run_sizes(self._count)))[::-1]
        return True

    def _fits_cell(self, state: Any) -> bool:
        """Return whether a state has the tensors that the cell gives, or is None, which stands for
        zeros."""
        tensors = state if self._is_lstm else (state,)
        if state is None:
            return True
        if type(tensors) is not tuple or len(tensors) != 1 + self._is_lstm:
            return False
        return are_tensors(*tensors) and all(
            tensor.shape == self._state_shape
            and tensor.dtype == torch.float32
            and tensor.device.type == "cpu"
            and tensor.layout == torch.strided
            for tensor in tensors
        )

    def _run(self, state: Any) -> None:
        """Compute the states of the next run, from the state before it."""
        if state is None:
            zeros = self._x.new_zeros(self._state_shape)
            state = (zeros, zeros) if self._is_lstm else zeros
        weights, part = _weights_of(self._cell), self._parts.pop()
        options = self._cell.bias, 1, 0.0, self._cell.training, False, False
        if self._is_lstm:
            first = tuple(tensor.unsqueeze(0) for tensor in state)
            states, _, last_cell_states = torch.lstm(part, first, weights, *options)
            self._final_cell_state = last_cell_states.squeeze(0).clone()
        else:
            states, _ = torch.gru(part, state.unsqueeze(0), weights, *options)
        self._ahead = list(torch.unbind_copy(states))[::-1]


def _run_sizes(count: int) -> list[int]:
    """Return the numbers of steps of the runs over `count` slices."""
    sizes: list[int] = []
    while count > 0:
        sizes.append(min(_FIRST_RUN << len(sizes), count))
        count -= sizes[-1]
    return sizes
