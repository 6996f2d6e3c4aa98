"""Test whole numbers that no example shows: loops that do not run, lists of other lengths, other
values that decide."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from torch import nn  # noqa: E402

import regraft  # noqa: E402
from regraft.splitting import Unsplittable  # noqa: E402
from regraft.splitting.checking.decision_check import difference  # noqa: E402


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def count(self, x: Any, *several: Any) -> Any:
        return x * len(several)

    def ordered(self, x: Any, first: Any, second: Any) -> Any:
        return x if first < second else -x

    def signed(self, x: Any, pair: Any) -> Any:
        return x if pair[0] < pair[1] else -x

    def short(self, x: Any, size: Any) -> Any:
        return x if size < 2 else -x


class VariableBefore(Network):
    def forward(self, x: Any, t: Any) -> Any:
        last = None
        for last in range(int(t)):  # noqa: B007
            x = x + 1
        return x * 100 if last is None else x * last


class VariableOfLayers(Network):
    def forward(self, x: Any, t: Any) -> Any:
        for element in self.layers:
            x = element(x)
        for element in range(int(t)):
            x = x + element
        while x.sum() > 1:
            for element in self.layers:
                x = element(x).clamp(-1, 1) * 0.1
        return x


class VariableTwice(Network):
    def forward(self, x: Any, t: Any) -> Any:
        total = 0
        for step in range(2):
            for place in range(int(t) - step):
                total = total + place
            x = x + total
        return x, total


class Multiplied(Network):
    def forward(self, x: Any, t: Any) -> Any:
        several = [0] * int(t)
        return x * len(several) if several else -x


class Added(Network):
    def forward(self, x: Any, t: Any) -> Any:
        several = [1]
        several += [2] * int(t)
        return x * len(several)


class OfRange(Network):
    def forward(self, x: Any, t: Any) -> Any:
        return x * len(list(range(int(t))))


class OfSlice(Network):
    def forward(self, x: Any, t: Any) -> Any:
        several = [1, 2, 3, 4][: int(t)]
        return x * len(several), [[0] * int(t), [1]][0]


class Given(Network):
    def forward(self, x: Any, t: Any) -> Any:
        several = [1, int(t)]
        return (
            self.ordered(x, *several)
            + self.signed(x, (several[0], several[1]))
            + self.signed(x, (*several,))
        )


class GivenSize(Network):
    def forward(self, x: Any, t: Any) -> Any:
        return self.short(x, x[: int(t)].shape[0])


class Largest(Network):
    def forward(self, x: Any, t: Any) -> Any:
        best, where = None, 0
        for place, value in enumerate((x * t).tolist()):
            if best is None or value > best:
                best, where = value, place
        return x * best, where


class LayersAndNumbers(Network):
    def forward(self, x: Any, t: Any) -> Any:
        factors = [int(t), 2, 3]
        for layer, factor in zip(self.layers, factors, strict=True):
            if x.sum() > 0:
                x = layer(x) * factor
        return x


class Sorted(Network):
    def forward(self, x: Any, t: Any) -> Any:
        parts = {"b": x, "a": x * t}
        for key in sorted(parts, reverse=True):
            if x.sum() > 0:
                x = x - parts[key]
        return x


def calls(numbers: Any) -> list[Any]:
    """Return four random calls with each number."""
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(4, generator=generator), torch.tensor(number))
        for number in numbers
        for _ in range(4)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [(0,), (2,), (3, 2), (0, 1, 2, 3, 4)], ids=str)
@pytest.mark.parametrize("kind", Network.__subclasses__(), ids=lambda kind: kind.__name__)
def test_other_numbers_than_those_of_the_examples(kind: type[nn.Module], numbers: Any) -> None:
    """Only numbers that no example shows raise an error that says so, at the latest when called."""
    model, said = kind().eval(), []
    try:
        result = regraft.split(model, calls(numbers), cache=False, unseen="raise")
    except Unsplittable as problem:
        said.append(str(problem))
    for call in calls(range(6)) if not said else ():
        try:
            got = result(*call)
        except RuntimeError as problem:
            said.append(str(problem))
        else:
            assert difference(got, model(*call)) == ""
    unseen = ("cannot be run on the example", "was never checked")
    assert all(any(reason in sentence for reason in unseen) for sentence in said)
    assert not said or len(numbers) < 5


@pytest.mark.parametrize(
    "kind",
    [VariableOfLayers, VariableTwice, Given, LayersAndNumbers, Sorted],
    ids=lambda kind: kind.__name__,
)
def test_the_same_in_a_single_file(kind: type[nn.Module]) -> None:
    model = kind().eval()
    result = regraft.split(model, calls(range(5)), cache=False, single_file=True, unseen="raise")
    for call in calls(range(5)):
        assert difference(result(*call), model(*call)) == ""


class Unassigned(nn.Module):
    def forward(self, x: Any, t: Any) -> Any:
        for place in range(int(t)):  # noqa: B007
            x = x + 1
        return x * place


class OtherRank(nn.Module):
    def forward(self, x: Any, t: Any) -> Any:
        row = x
        for row in x[: int(t)]:  # noqa: B007
            x = x + 1
        return x * 2 if row.dim() == 1 else -x


class ReturnsInElse(Network):
    def sought(self, x: Any, n: Any) -> Any:
        for place in range(n):
            if x[place % 4] > 2:
                return x * 100
        else:  # noqa: PLW0120
            with torch.no_grad():
                if x[0] > 0:
                    return x
            return -x

    def forward(self, x: Any, t: Any) -> Any:
        return self.sought(x, int(t))


class Changed(Network):
    def forward(self, x: Any, t: Any) -> Any:
        several = [1, int(t)]
        return self.count(x, *several, several.pop())


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (OtherRank, "row has different types or shapes"),
        (ReturnsInElse, "in a with that others follow"),
        (Changed, "a list changes within an expression"),
    ],
    ids=lambda parameter: getattr(parameter, "__name__", ""),
)
def test_what_is_refused(kind: type[nn.Module], reason: str) -> None:
    with pytest.raises(Unsplittable, match=reason):
        regraft.split(kind().eval(), calls(range(5)), cache=False, unseen="raise")


def test_a_variable_of_a_loop_that_does_not_run_has_no_value() -> None:
    result = regraft.split(Unassigned().eval(), calls([2, 3]), cache=False)
    with pytest.raises(UnboundLocalError):
        result(torch.ones(4), torch.tensor(0))
    with pytest.raises(Unsplittable, match="only some of the paths here assign"):
        regraft.split(Unassigned().eval(), calls([2, 3]), cache=False, single_file=True)


class Empty(nn.Module):
    def forward(self, x: Any, t: Any) -> Any:
        several = [x]
        for element in several[1:]:
            x = x + element
        several.pop()
        for element in several:
            x = x * element
        return x if t > 2 else -x


@pytest.mark.parametrize("single", [False, True])
def test_loops_over_lists_that_are_empty(single: bool) -> None:
    model = Empty().eval()
    result = regraft.split(model, calls(range(5)), cache=False, single_file=single)
    for call in calls(range(6)):
        assert difference(result(*call), model(*call)) == ""


def test_what_no_example_leads_to_raises_and_is_listed() -> None:
    model = VariableOfLayers().eval()
    with pytest.raises(Unsplittable, match="no example leads to region"):
        regraft.split(model, calls([0]), cache=False)
    result = regraft.split(model, calls([0]), cache=False, unseen="raise")
    assert any(place.endswith("no example leads here") for place in result.report.unseen)
    with pytest.raises(
        RuntimeError, match=r"test_unseen_numbers\.py:\d+: what stands here was never checked"
    ):
        result(torch.ones(4), torch.tensor(2))
