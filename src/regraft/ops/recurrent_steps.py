"""The steps of a loop that calls the cell of an LSTM: `h, c = cell(x[:, t], (h, c))`."""

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
)
from regraft.ops.slices_along import slices_along_reference

# The steps of the first run; each further run has twice as many, up to the last slice.
_FIRST_RUN = 64
_FEWEST_RUN_STEPS = 8
_WEIGHTS = ("weight_ih", "weight_hh")
_BIASES = ("bias_ih", "bias_hh")


def recurrent_steps(x: torch.Tensor, cell: Any, dim: int) -> Callable[[int, Any], Any]:
    """Return what gives `cell(x[:, i], state)` (for `dim` 1) when it is called with `i` and
    `state`.

    Shapes: x (batch, steps, features) for `dim` 1; the cell is an `LSTMCell`. Where a
    loop goes through the slices in their order or backwards and hands over the last result as it
    is, the steps that follow are computed ahead, 64 or more at once, by the layer of several steps
    with the cell's own parameters. That has no cell states but the last one of a run: in the other
    results a placeholder stands for the cell state, which only the next step takes. The cell itself
    computes any other call; where that is no next step of a run, it computes the steps before it
    once more, for their cell state. With gradients the cell also computes the last slice, so that
    the last hidden state depends on the last cell state, and no run goes over numbers that are not
    finite: slices that the loop leaves out have no part in the loop's gradients.
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
    if not _fits_lstm(x) or x.dim() != 3 or not x.numel() or not _is_plain_cell(cell):
        return "reference"
    fewest = 2 if are_kernels_forced() else _FEWEST_RUN_STEPS
    is_fitting = x.shape[2 if dim < 2 else 1] == cell.input_size and x.shape[dim] >= fewest
    return "torch-native" if is_fitting and 0 <= dim <= 2 else "reference"


def _is_plain_cell(cell: Any) -> bool:
    """Return whether a module is a cell of PyTorch with parameters in float32 on a CPU, where a
    layer of several steps is faster."""
    if not is_plain(cell, nn.LSTMCell):
        return False
    if not torch.backends.mkldnn.is_available() or not torch.backends.mkldnn.enabled:
        return False
    if torch.get_float32_matmul_precision() != "highest":
        return False
    return _have_weights_of_layer(cell)


def _have_weights_of_layer(cell: Any) -> bool:
    """Return whether the attributes of a cell are its parameters, in float32 on a CPU and of the
    shapes of its sizes, with both biases or none."""
    parameters, rows = cell._parameters, 4 * cell.hidden_size
    if any(
        getattr(cell, name, None) is not parameters.get(name, cell) for name in _WEIGHTS + _BIASES
    ):
        return False
    shapes = [(rows, cell.input_size), (rows, cell.hidden_size), (rows,), (rows,)]
    return all(
        parameter is not None and parameter.shape == shape and _fits_lstm(parameter)
        for parameter, shape in zip(_parameters_of(cell), shapes, strict=False)
    )


def _parameters_of(cell: Any) -> tuple[torch.Tensor, ...]:
    """Return the parameters of a cell in the order in which layers take them."""
    return tuple(cell._parameters[name] for name in _parameter_names(cell))


def _parameter_names(cell: Any) -> tuple[str, ...]:
    """Return the names of a cell's parameters."""
    has_bias = any(cell._parameters[name] is not None for name in _BIASES)
    return _WEIGHTS + _BIASES if has_bias else _WEIGHTS


def _fits_lstm(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is an ordinary one in float32 on a CPU, and not of an inference mode
    that is over: autograd rejects those."""
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        return False
    is_on_cpu = tensor.layout == torch.strided and tensor.device.type == "cpu"
    return bool(is_on_cpu and tensor.dtype == torch.float32)


def _version_number(tensor: torch.Tensor) -> int:
    """Return the version counter of a tensor; -1 for a tensor of inference mode, which has none."""
    return -1 if tensor.is_inference() else tensor._version


class _AbsentCellState:
    """What stands for a cell state that was not computed."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("the cell state of a step is read, but only the last one was computed")


class _RecurrentSteps:
    """The steps of one loop. The hidden states that were computed ahead stay in `_ahead`, the next
    one last; they hold as long as nothing has changed in place since, and each call hands over the
    result of the call before."""

    def __init__(self, x: torch.Tensor, cell: Any, dim: int) -> None:
        self._x, self._cell, self._dim = x, cell, dim
        self._count = x.shape[dim]
        self._state_shape = (x.shape[1 if dim == 0 else 0], cell.hidden_size)
        self._slices = slices_along_reference(x, dim)
        self._last: Any = None
        self._next = self._direction = self._last_version = 0
        self._placeholder = _AbsentCellState()
        self._ahead: list[torch.Tensor] = []
        self._parts: list[torch.Tensor] = []
        self._final_cell_state: Any = None
        self._records_gradients, self._is_in_order = False, True
        self._first: tuple[int, Any] = (0, None)
        self._operands: list[tuple[str, torch.Tensor, int, bool]] = []

    def __call__(self, step: int, state: Any) -> Any:
        is_next = bool(self._ahead) and type(step) is int and step == self._next
        if is_next and self._is_last(state) and self._are_conditions_equal():
            return self._take_ahead(step)
        if type(state) is tuple and state and state[-1] is self._placeholder:
            state = state[0], self._cell_state_of(state)
            self._is_in_order = False
        if type(step) is int and self._can_run(step, state) and self._run(step, state):
            return self._take_ahead(step)
        self._ahead, self._parts, self._last = [], [], None
        return self._cell(self._slices[step], state)

    def _cell_state_of(self, state: Any) -> Any:
        """Return the cell state of the last result, from the first step of its run on."""
        if not self._is_last(state) or not self._are_conditions_equal():
            raise RuntimeError("the cell or its input has changed between steps of a loop")
        first_step, recomputed = self._first
        for step in range(first_step, self._next, self._direction):
            recomputed = self._cell(self._slices[step], recomputed)
        return recomputed[1]

    def _are_conditions_equal(self) -> bool:
        """Return whether gradients are recorded or not, and tensors are, as they were when the run
        was computed."""
        if torch.is_grad_enabled() is not self._records_gradients:
            return False
        parameters = self._cell._parameters
        for name, operand, version, needs_gradient in self._operands:
            if name and parameters.get(name) is not operand:
                return False
            if operand.requires_grad is not needs_gradient:
                return False
            if version >= 0 and operand._version != version:
                return False
        return True

    def _note_conditions(self) -> None:
        """Keep what has to be equal in all steps of a run."""
        self._records_gradients = torch.is_grad_enabled()
        parameters = [(name, self._cell._parameters[name]) for name in _parameter_names(self._cell)]
        self._operands = [
            (name, operand, _version_number(operand), operand.requires_grad)
            for name, operand in (("", self._x), *parameters)
        ]

    def _is_last(self, state: Any) -> bool:
        """Return whether a state is the last result, unchanged."""
        last = self._last
        if state is not last:
            if last is None or type(state) is not tuple or len(state) != 2:
                return False
            if state[0] is not last[0] or state[1] is not last[1]:
                return False
        return self._last_version < 0 or bool(last[0]._version == self._last_version)

    def _take_ahead(self, step: int) -> Any:
        """Return the result of a step that was computed ahead."""
        hidden = self._ahead.pop()
        cell_state = self._placeholder if self._ahead else self._final_cell_state
        self._last, self._next = (hidden, cell_state), step + self._direction
        self._last_version = _version_number(hidden)
        return self._last

    def _can_run(self, step: int, state: Any) -> bool:
        """Return whether `_parts` ends in the input of a run from a step on: what follows the runs
        until here, or all slices of a loop that begins at either end, with gradients without the
        last one."""
        is_next = step == self._next and not self._ahead and self._last is not None
        if is_next and not self._parts:
            return False
        if not is_next or not self._is_last(state) or not self._are_conditions_equal():
            self._ahead, self._parts = [], []
            if not self._is_in_order:
                return False
            self._direction = int(step == 0) - int(step == self._count - 1)
            if not self._direction or not self._fits_cell(state):
                return False
            if recurrent_steps_implementation(self._x, self._cell, self._dim) == "reference":
                return False
            slices = self._x.movedim(self._dim, 0)
            slices = slices.flip(0) if self._direction < 0 else slices
            count = self._count - int(torch.is_grad_enabled())
            self._parts = list(slices[:count].split(_sizes_of_runs(count)))[::-1]
        return True

    def _fits_cell(self, state: Any) -> bool:
        """Return whether a state has the tensors that the cell gives, or is None, which stands for
        zeros."""
        if state is None:
            return True
        if type(state) is not tuple or len(state) != 2 or not are_tensors(*state):
            return False
        return all(tensor.shape == self._state_shape and _fits_lstm(tensor) for tensor in state)

    def _run(self, step: int, state: Any) -> bool:
        """Compute the states of the next run, from the state before it; return False where the run
        may not take the place of its steps."""
        if state is None:
            zeros = self._x.new_zeros(self._state_shape)
            state = zeros, zeros
        self._note_conditions()
        weights, part = _parameters_of(self._cell), self._parts.pop()
        options = len(weights) > 2, 1, 0.0, self._cell.training, False, False
        first = tuple(tensor.unsqueeze(0) for tensor in state)
        states, _, last_cell_states = torch.lstm(part, first, weights, *options)
        if states.requires_grad and not _are_finite_steps(part, states, last_cell_states):
            return False
        self._first = step, state
        self._final_cell_state = last_cell_states.squeeze(0).clone()
        self._ahead = list(torch.unbind_copy(states))[::-1]
        return True


def _are_finite_steps(*tensors: torch.Tensor) -> bool:
    """Return whether no element of any tensor is infinite or no number."""
    return bool(sum(tensor.detach().sum() for tensor in tensors).isfinite())


def _sizes_of_runs(count: int) -> list[int]:
    """Return the numbers of steps of the runs over `count` slices."""
    sizes: list[int] = []
    while count > 0:
        sizes.append(min(_FIRST_RUN << len(sizes), count))
        count -= sizes[-1]
    return sizes
