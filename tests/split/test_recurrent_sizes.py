"""Recurrent cells and layers on sizes that no example has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
nn = torch.nn

import regraft  # noqa: E402
from regraft.splitting.checking.result_difference import difference  # noqa: E402
from regraft.splitting.compiling.size_guards import symbolic_guards  # noqa: E402
from regraft.splitting.program.residual import Region  # noqa: E402
from split.comparison import attempt  # noqa: E402

CELLS = {
    "gru": lambda: nn.GRUCell(8, 8),
    "lstm": lambda: nn.LSTMCell(8, 8),
    "tanh": lambda: nn.RNNCell(8, 8),
    "relu": lambda: nn.RNNCell(8, 8, nonlinearity="relu", bias=False),
}
LAYERS = {
    "gru": lambda: nn.GRU(8, 8, batch_first=True),
    "lstm": lambda: nn.LSTM(8, 8, num_layers=2, batch_first=True),
    "tanh": lambda: nn.RNN(8, 8, batch_first=True),
    "both directions": lambda: nn.LSTM(8, 8, batch_first=True, bidirectional=True),
}


class Stepping(nn.Module):
    """Calls a cell up to three times."""

    def __init__(self, cell: Any) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Any, state: Any, memory: Any) -> Any:
        for _ in range(3):
            if isinstance(self.cell, nn.LSTMCell):
                state, memory = self.cell(x, (state, memory))
            else:
                state = self.cell(x, state)
            if state.mean() > 0.05:
                break
        return state + memory


class Reading(nn.Module):
    """Reads sequences by a layer."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        states, _ = self.layer(x)
        if states.mean() > 0.01:
            states = states * 2
        return states


class ReadingEach(nn.Module):
    """Reads as many steps of each sequence as its length says, in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(8, 8, batch_first=True, bidirectional=True)

    def forward(self, x: Any, lengths: Any) -> Any:
        results = []
        for place, length in enumerate(lengths.tolist()):
            states, _ = self.layer(x[place : place + 1, :length])
            results.append(nn.functional.pad(states, (0, 0, 0, x.shape[1] - length)))
        return torch.cat(results)


def step_call(*shape: int, scale: float = 1.0) -> tuple[Any, ...]:
    return scale * torch.randn(*shape, 8), torch.zeros(*shape, 8), torch.ones(*shape, 8)


def guards(module: Callable[..., Any], sample: tuple[Any, ...], dims: int) -> set[str]:
    """Return the guards of a module on a sample whose first sizes are symbols, without those that
    tell one row from several."""
    names = ("x", "h", "c")[: len(sample)]
    axes = {name: {dim: f"{name}_{dim}" for dim in range(dims)} for name in names}
    texts = {
        guard.text
        for guard in symbolic_guards(Region(0, [], names, ()), module, sample, axes)  # type: ignore[arg-type]
    }
    return {text for text in texts if not any(number in text for number in ("1", "2"))}


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("count", [1, 4])
def test_a_cell_asks_for_equal_batches_alone(name: str, count: int) -> None:
    cell = CELLS[name]()
    states = torch.zeros(count, 8), torch.ones(count, 8)
    if name == "lstm":
        called = guards(lambda x, h, c: cell(x, (h, c)), (torch.randn(count, 8), *states), 1)
        assert called == {"x.shape[0] == h.shape[0]", "x.shape[0] == c.shape[0]"}
    else:
        called = guards(cell, (torch.randn(count, 8), states[0]), 1)
        assert called == {"x.shape[0] == h.shape[0]"}


def test_a_cell_asks_for_the_size_that_its_weights_have() -> None:
    rows = torch.randn(8), torch.zeros(8)
    assert guards(nn.GRUCell(8, 8), rows, 1) == {"x.shape[0] == 8", "h.shape[0] == 8"}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_does_not_decide_by_the_number_of_steps(name: str) -> None:
    assert not {
        text for text in guards(LAYERS[name](), (torch.randn(4, 5, 8),), 2) if "== 5" in text
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_a_cell_takes_every_batch(name: str) -> None:
    torch.manual_seed(0)
    model = Stepping(CELLS[name]()).eval()
    calls = [step_call(n, scale=scale) for scale in (0.1, 0.5, 1, 2, 4) for n in (1, 2, 4)]
    result = regraft.split(model, calls, cache=False, unseen="raise", measure=False)
    assert not result.report.islands
    for count in (0, 1, 3, 5, 9, 200):
        call = step_call(count)
        assert difference(result(*call), model(*call)) == ""
    x, state, memory = step_call(4)
    for call in ((x, state[:1], memory), (x[:3], state, memory), (x[:1], state, memory)):
        assert isinstance(attempt(model, call), Exception)
        assert isinstance(attempt(result, call), Exception)


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_a_cell_takes_one_row_without_batch(name: str) -> None:
    torch.manual_seed(0)
    model = Stepping(CELLS[name]()).eval()
    calls = [step_call(scale=scale) for scale in (0.1, 0.5, 1, 2, 4)]
    result = regraft.split(model, calls, cache=False, unseen="raise", measure=False)
    call = step_call()
    assert difference(result(*call), model(*call)) == ""
    with pytest.raises(ValueError, match="the network was split for"):
        result(*step_call(3))


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_takes_every_batch_and_length(name: str) -> None:
    torch.manual_seed(0)
    model = Reading(LAYERS[name]()).eval()
    sizes = ((2, 5), (1, 7), (4, 3), (1, 1))
    calls = [(scale * torch.randn(*size, 8),) for scale in (-4, 1, 4) for size in sizes]
    result = regraft.split(model, calls, cache=False, unseen="raise", measure=False)
    assert not result.report.islands
    for size in ((1, 2), (2, 1), (5, 9), (3, 77), (70, 2)):
        x = torch.randn(*size, 8)
        assert difference(result(x), model(x)) == ""
    for size in ((3, 0), (0, 3)):  # ONNX Runtime would end the process
        with pytest.raises(RuntimeError, match="the sub-network fails"):
            result(torch.randn(*size, 8))


@pytest.mark.slow
def test_a_layer_reads_each_sequence_to_its_length() -> None:
    torch.manual_seed(0)
    model = ReadingEach().eval()
    calls = [(torch.randn(2, 6, 8), torch.tensor(lengths)) for lengths in ((6, 3), (2, 6), (1, 1))]
    result = regraft.split(model, calls, cache=False, measure=False)
    assert not result.report.islands
    for lengths in ((4, 5), (1, 6), (6, 6)):
        call = torch.randn(2, 6, 8), torch.tensor(lengths)
        assert difference(result(*call), model(*call)) == ""
    for lengths in ((0, 5), (7, 1)):  # no step at all, and a negative padding
        call = torch.randn(2, 6, 8), torch.tensor(lengths)
        expected = attempt(model, call)
        got = attempt(result, call)
        assert isinstance(got, Exception) or difference(got, expected) == ""
