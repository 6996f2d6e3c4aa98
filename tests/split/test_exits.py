"""Splits of small programs that leave functions early, and of modules with forwards of their
own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import regraft  # noqa: E402
from regraft.splitting.checking.result_difference import difference  # noqa: E402
from split import exits  # noqa: E402

NETWORKS = [
    exits.OwnForward,
    exits.LeavesInMethod,
    exits.LeavesTwoLoops,
    exits.BreaksOrReturns,
    exits.ReturnsInHostLoop,
    exits.PositionOfDisplay,
    exits.PositionOfGrownList,
    exits.WorksInPlace,
    exits.WorksInPlaceInLoop,
    exits.DropsInput,
]


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    """Compute without gradients, as a split network does."""
    with torch.no_grad():
        yield


def make_calls(count: int) -> list[Any]:
    """Return inputs of different sizes of values, as calls."""
    return [(torch.randn(2, 6) * (0.1, 1, 3, 6)[number % 4],) for number in range(count)]


@pytest.mark.parametrize("kind", NETWORKS)
def test_early_exits_on_values_beyond_the_examples(kind: Any) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    result = regraft.split(model, make_calls(8), cache=False)
    assert not result.report.unseen and not result.report.islands
    assert result.report.sides_run == result.report.sides > 0
    for call in make_calls(60):
        assert difference(result(*call), model(*call)) == ""


@pytest.mark.parametrize(
    "kind", [exits.OwnForward, exits.PositionOfDisplay, exits.PositionOfGrownList]
)
def test_early_exits_in_a_single_file(kind: Any) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    result = regraft.split(model, make_calls(8), cache=False, single_file=True)
    for call in make_calls(60):
        assert difference(result(*call), model(*call)) == ""


def test_an_early_exit_takes_each_way_out() -> None:
    torch.manual_seed(0)
    model = exits.LeavesInMethod().eval()
    ways = {(int(place), left) for _, place, left in (model(*call) for call in make_calls(60))}
    assert len(ways) >= 4


def test_positions_are_whole_numbers_and_the_first_of_equals() -> None:
    model = exits.PositionOfDisplay().eval()
    result = regraft.split(model, make_calls(8), cache=False)
    x = torch.zeros(2, 6)
    x[0, 0] = 5.0
    assert type(model(x)[1]) is numpy.int64 and model(x)[1] == 0
    assert type(result(x)[1]) is int and result(x)[1] == 0
    assert difference(3, numpy.int64(3)) == ""
    assert "4 instead of 3" in difference(4, numpy.int64(3))
    assert difference(True, numpy.int64(1)) and difference(1.0, numpy.int64(1))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (exits.PositionOfVectors, "write torch.stack"),
        (exits.PositionOfNumbers, "the call of 'argmax'|the call of argmax"),
        (exits.ReadsAndWorksInPlace, "an expression that reads it, too"),
        (exits.ChangesInput, "changed in"),
    ],
)
def test_positions_and_work_in_place_are_refused_with_the_reason(kind: Any, reason: str) -> None:
    with pytest.raises(regraft.Unsplittable, match=reason):
        regraft.split(kind().eval(), make_calls(4), cache=False)


@pytest.mark.parametrize(
    "replace", [exits.replace_by_partial, exits.replace_by_function, exits.replace_by_wrapper]
)
def test_a_forward_that_is_no_method_of_a_module_is_refused(replace: Any) -> None:
    model = exits.Replaced().eval()
    replace(model.layer)
    with pytest.raises(regraft.Unsplittable, match=r"forward of this Layers was replaced"):
        regraft.split(model, make_calls(4), cache=False)
