"""Splits of networks whose calls leave a state to the next one."""

from __future__ import annotations

import copy
import inspect
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import regraft  # noqa: E402
from regraft.splitting.checking.result_difference import difference  # noqa: E402
from regraft.splitting.errors import Unsplittable  # noqa: E402
from regraft.splitting.states_between_calls import depends_on_first_call  # noqa: E402
from split import carried  # noqa: E402
from split.language import Layers  # noqa: E402

STATES = {
    "HiddenBuffer": {"h", "count"},
    "CounterBuffer": {"steps"},
    "GrowingCache": {"past"},
    "PreallocatedCache": {"cache", "position"},
    "CachePerLayer": {"past"},
    "RecurrentLayers": {"layers.0.state", "layers.1.state"},
    "LastToken": {"h", "token"},
    "Gate": {"is_open", "scale"},
    "StreamingConvolution": {"end"},
    "ScratchOnly": set(),
    "ReplacedBuffer": {"state"},
    "Alternates": {"turn"},
    "PreparesAgain": {"mask"},
    "FirstFrame": {"mean"},
    "RunningPeak": {"peak"},
    "EmptyAtFirst": {"last", "ratio"},
    "FirstCall": {"calls"},
}

REFUSED = {
    "FirstSign": "may depend on the inputs of earlier calls",
    "QuotedPath": "the first call gives something else",
}

pytestmark = pytest.mark.usefixtures("without_gradients")


def make_calls(kind: Any) -> list[tuple[Any, ...]]:
    """Return example calls of a network, one row each unless it says otherwise."""
    return [(torch.randn(rows, 6),) for rows in getattr(kind, "ROWS", (1, 1, 1, 1))]


def test_every_network_is_tested() -> None:
    networks = {
        name
        for name, kind in vars(carried).items()
        if inspect.isclass(kind) and issubclass(kind, Layers) and kind is not Layers
    }
    assert networks == STATES.keys() | REFUSED.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", STATES)
def test_calls_in_sequence_give_what_the_original_gives(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = getattr(carried, name)().eval()
    calls = make_calls(type(model))
    untouched, original = copy.deepcopy(model), copy.deepcopy(model)
    result = regraft.split(model, calls, cache=False)
    assert set(result.report.carried) == set(result.state) == STATES[name]
    for number in range(12):
        (x,) = calls[number % len(calls)]
        changed = x * (1, 3, -1)[number % 3] + 0.1 * number
        assert difference(result(changed), original(changed)) == ""
    result.save(tmp_path)
    loaded = regraft.load_split(tmp_path)
    result.reset()
    for call in calls:
        expected = untouched(*call)
        assert difference(result(*call), expected) == ""
        assert difference(loaded(*call), expected) == ""


@pytest.mark.slow
def test_the_model_and_its_state_stay_as_they_are() -> None:
    model = carried.GrowingCache().eval()
    model(torch.randn(2, 6))
    past = model.past
    result = regraft.split(model, make_calls(type(model)), cache=False)
    assert model.past is past and "past" not in model._buffers
    assert torch.equal(result.state["past"], past)
    x = torch.randn(1, 6)
    assert difference(result(x), model(x)) == ""


@pytest.mark.slow
def test_a_state_is_an_input_and_an_output() -> None:
    model = carried.LastToken().eval()
    result = regraft.split(model, make_calls(type(model)), cache=False)
    x = torch.randn(1, 6)
    result(x)
    state = dict(result.state)
    following = result(x)
    result.state = state
    assert torch.equal(result(x), following)
    result.state = {"h": None, "token": None}
    assert torch.equal(result(x), carried.LastToken.forward(copy.deepcopy(model), x))
    result.state = {"h": None, "token": torch.tensor([1])}
    with pytest.raises(ValueError, match="h is None, token is None; here it does in some"):
        result(x)
    result.state = {"h": 3.0, "token": None}
    with pytest.raises(ValueError, match=r"h is 3\.0; without tensors it is None"):
        result(x)
    result.state = {"token": None}
    with pytest.raises(ValueError, match="the states are h, token"):
        result(x)


def test_a_call_that_fails_leaves_the_state() -> None:
    result = regraft.split(carried.CounterBuffer().eval(), [(torch.randn(1, 6),)] * 4, cache=False)
    with pytest.raises(ValueError, match="x"):
        result(torch.randn(1, 7))
    assert result.state == {"steps": torch.tensor(0)}


def test_a_damaged_file_of_states_is_refused(tmp_path: Path) -> None:
    calls = [(torch.randn(1, 6),)] * 4
    regraft.split(carried.CounterBuffer().eval(), calls, cache=False).save(tmp_path)
    (tmp_path / "states.npz").write_bytes(b"")
    with pytest.raises(ValueError, match=r"states\.npz is not the file"):
        regraft.load_split(tmp_path)


@pytest.mark.parametrize("name", REFUSED)
def test_states_without_a_form_are_refused(name: str) -> None:
    torch.manual_seed(0)
    model = getattr(carried, name)().eval()
    with pytest.raises(Unsplittable, match=REFUSED[name]):
        regraft.split(model, [(torch.randn(1, 6),)] * 4, cache=False)


def test_a_state_of_changing_structure_is_refused() -> None:
    with pytest.raises(Unsplittable, match="a call changes the attribute kept of the network"):
        regraft.split(carried.LastFour().eval(), [(torch.randn(1, 6),)] * 4, cache=False)


@pytest.mark.parametrize("name", ["SharedTensor", "SeenInParts", "MeetLater", "ListsMeetLater"])
def test_a_state_that_is_seen_in_another_one_is_refused(name: str) -> None:
    model = getattr(carried, name)().eval()
    with pytest.raises(Unsplittable, match=r"from call|in place|a call changes|earlier calls"):
        regraft.split(model, [(torch.randn(1, 6),)] * 4, cache=False)


@pytest.mark.parametrize("options", [{"single_file": True}, {"batched": True}])
def test_single_files_and_batches_take_no_state(options: dict[str, bool]) -> None:
    model = carried.CounterBuffer().eval()
    with pytest.raises(Unsplittable, match="make it an argument of forward"):
        regraft.split(model, [(torch.randn(1, 6),)] * 4, cache=False, **options)


def test_what_the_first_call_leaves_in_a_module_that_is_not_registered_is_refused() -> None:
    model = carried.FirstMean().eval()
    with pytest.raises(Unsplittable, match="may depend on the inputs of earlier calls"):
        regraft.split(model, [(torch.randn(1, 6),) for _ in range(4)], cache=False)


def test_a_loop_that_does_not_end_for_other_inputs_ends_with_an_error() -> None:
    calls = [{"x": torch.randn(1, 6), "steps": torch.tensor(float(count))} for count in (2, 3)]
    assert not depends_on_first_call(carried.CountsDown().eval(), calls)
