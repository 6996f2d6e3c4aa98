"""Errors of split networks and refusals: each names its place, and has the type that the original's
error has; values that are made up while a network is split ask for no gigabytes."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from torch import nn  # noqa: E402

import regraft  # noqa: E402
from regraft.splitting.checking.decision_check import difference  # noqa: E402
from regraft.splitting.sampling.bounded_results import TooLarge, bounded_results  # noqa: E402
from split.comparison import attempt  # noqa: E402

pytestmark = pytest.mark.usefixtures("without_gradients")


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))

    def forward(self, x: Any) -> Any:
        return self.layers[int(x[0, 0])](x)


class NamedLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({f"expert_{number}": nn.Linear(2, 2) for number in range(3)})

    def forward(self, x: Any) -> Any:
        return self.layers[f"expert_{int(x[0, 0])}"](x)


class Stacked(nn.Module):
    def forward(self, x: Any) -> Any:
        rows = []
        for row in x:
            if row.sum() > 0:
                rows.append(row * 2)
        return torch.stack(rows)


class Concatenated(nn.Module):
    def forward(self, x: Any) -> Any:
        rows = []
        for row in x:
            if row.sum() > 0:
                rows.append(row * 2)
        return torch.cat(rows)


class Square(nn.Module):
    def forward(self, x: Any) -> Any:
        n = int(x.sum())
        square = n * n
        return x * 2.0 + square if n > 4 else x * 1.0 - square


class Counted(nn.Module):
    def forward(self, x: Any) -> Any:
        counts = torch.bincount(x, minlength=4)
        return counts * 2 if counts[0] > 1 else counts


class CountedFloats(nn.Module):
    def forward(self, x: Any) -> Any:
        counts = torch.bincount(x.long().clamp(min=0), minlength=4)
        return counts * 2 if counts[0] > 1 else counts


class Unequal(nn.Module):
    """It raises for what no example has, where the compiled network gives a number."""

    def forward(self, x: Any) -> Any:
        counts = torch.bincount(x[x > 0])
        return counts.sum() if counts.numel() > 3 else counts.max()


class BeyondLayers(Layers):
    def forward(self, x: Any) -> Any:
        y = x * 2 if x.sum() > 0 else x
        return self.layers[5](y)


def first(number: float) -> tuple[Any, ...]:
    return (torch.tensor([[number, 1.0], [2.0, 3.0]]),)


def tensor(*numbers: float) -> tuple[Any, ...]:
    return (torch.tensor(numbers),)


ROWS = torch.arange(-12.0, 12.0).reshape(8, 3)
MODULES = [first(0.0), first(1.0), first(2.0)]
OTHER_INDICES = [first(number) for number in (-1.0, -3.0, -4.0, 3.0, 2.5, -0.5, 100.0)]
MIXED_ROWS = [(ROWS,), (-ROWS,), (ROWS.flip(0),)]
OTHER_ROWS = [(ROWS + 100,), (ROWS - 5,), (-ROWS.abs(),), (ROWS * 0,), (ROWS * torch.nan,)]
PAIRS = [tensor(3, 4), tensor(7, -5), tensor(1, 1), tensor(5, 0)]
OTHER_PAIRS = [tensor(2**40, 1), tensor(2**62, 2**61), tensor(-(2**33), 2), tensor(2**30, 0)]
WHOLE = [tensor(0, 0, 1, 3), tensor(1, 2, 3, 0), tensor(3, 3, 3, 3)]
OTHER_WHOLE = [tensor(0, 0, 0, 0), tensor(7, 0, 2, 0), tensor(-1, 0, 0, 0), tensor(500, 0, 0, -2)]
CASES = {
    "Layers": (Layers, MODULES, OTHER_INDICES),
    "NamedLayers": (NamedLayers, MODULES, OTHER_INDICES),
    "Stacked": (Stacked, MIXED_ROWS, OTHER_ROWS),
    "Concatenated": (Concatenated, MIXED_ROWS, OTHER_ROWS),
    "Square": (Square, PAIRS, OTHER_PAIRS),
    "Counted": (Counted, WHOLE, OTHER_WHOLE),
}


@pytest.mark.parametrize("single_file", [False, True], ids=["directory", "file"])
@pytest.mark.parametrize("name", CASES)
def test_errors_are_those_of_the_original(name: str, single_file: bool) -> None:
    network, calls, others = CASES[name]
    torch.manual_seed(0)
    model = network().eval()
    result = regraft.split(model, calls, cache=False, measure=False, single_file=single_file)
    failures = 0
    for call in [*calls, *others]:
        got, expected = attempt(result, call), attempt(model, call)
        if not isinstance(expected, Exception):
            assert difference(got, expected) == ""
            continue
        failures += 1
        assert type(got) is (RuntimeError if single_file else type(expected))
        assert single_file or f"{inspect.getsourcefile(network)}:" in str(got)
    assert failures


@pytest.mark.parametrize("name", ["Unequal", "BeyondLayers"])
def test_refusals_name_a_line_of_forward(name: str) -> None:
    network = {"Unequal": Unequal, "BeyondLayers": BeyondLayers}[name]
    calls = [tensor(0, 0, 1, 3), tensor(7, 2, 1, 0), tensor(2, 2, 1, 0, 0)]
    with pytest.raises(regraft.Unsplittable) as refusal:
        regraft.split(network().eval(), calls if network is Unequal else MODULES, cache=False)
    lines, start = inspect.getsourcelines(network.forward)
    assert start <= refusal.value.line < start + len(lines)
    assert str(refusal.value).startswith(f"{refusal.value.path}:{refusal.value.line}: ")


def test_a_refusal_of_the_calls_names_forward() -> None:
    _, start = inspect.getsourcelines(Square.forward)
    for calls in ([], 3, [1], [(1, 2, 3)], [tensor(1, 2), (torch.zeros(1, 2),)]):
        with pytest.raises(regraft.Unsplittable, match=f"test_error_places.py:{start}: "):
            regraft.split(Square().eval(), calls, cache=False)


def test_an_example_call_with_a_larger_number_is_refused_by_its_reason() -> None:
    with pytest.raises(regraft.Unsplittable, match=r"goes into tensors here.* 64 bits"):
        regraft.split(Square().eval(), [*PAIRS, tensor(3037000500, 0)], cache=False)


def test_made_up_values_ask_for_no_large_results() -> None:
    calls = [tensor(0.1, 0.0, 1.0), tensor(1.0, 2.0, 3.0), tensor(*(0.5 * n for n in range(100)))]
    model = CountedFloats().eval()
    result = regraft.split(model, calls, cache=False, measure=False)
    assert result.report.islands == ()
    for call in [*calls, tensor(9.0, 0.0, 0.0), tensor(-1.0, 5000.0)]:
        assert difference(result(*call), model(*call)) == ""


def test_results_are_bounded_by_values_alone() -> None:
    large, small = torch.tensor([2**40, 1]), torch.tensor([2, 1])
    with bounded_results():
        for call in (
            lambda: torch.bincount(large),
            large.bincount,
            lambda: torch.repeat_interleave(torch.ones(2), large),
            lambda: torch.ones(2).repeat_interleave(large),
            lambda: nn.functional.one_hot(large),
        ):
            with pytest.raises(TooLarge, match=r"ask torch\.\w+ for \d+ elements"):
                call()
        assert torch.bincount(small).tolist() == [0, 1, 1]
        assert torch.ones(2).repeat_interleave(small).tolist() == [1, 1, 1]
        assert nn.functional.one_hot(small, 3).tolist() == [[0, 0, 1], [0, 1, 0]]
    assert torch.bincount.__name__ == "bincount"


class CountsCalls(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return x * self.calls


def test_a_changed_buffer_is_named_with_a_remedy() -> None:
    message = "the buffer calls is changed in place.*argument"
    with pytest.raises(regraft.Unsplittable, match=message):
        regraft.split(CountsCalls().eval(), [(torch.ones(2),)], cache=False, single_file=True)
