"""Sizes of slices between numbers that the host computes: a split network gives what the original
gives, or says that no example showed the side."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import regraft  # noqa: E402
from regraft.splitting.checking.result_difference import difference  # noqa: E402
from split import bounds  # noqa: E402

pytestmark = pytest.mark.usefixtures("without_gradients")

SHOWN, HIDDEN = (
    [
        network
        for network in vars(bounds).values()
        if inspect.isclass(network)
        and issubclass(network, kind)
        and hasattr(network, "forward")
        and network.forward is not torch.nn.Module.forward
    ]
    for kind in (bounds.Bounds, bounds.Hidden)
)


@pytest.mark.parametrize("network", SHOWN, ids=lambda network: network.__name__)
def test_the_size_of_a_slice_decides_on_bounds_beyond_the_examples(network: Any) -> None:
    torch.manual_seed(0)
    model = network().eval()
    result = regraft.split(model, model.calls(), cache=False, measure=False)
    for call in model.rare():
        assert difference(result(*call), model(*call)) == ""


def call_or_refuse(result: Any, call: tuple[Any, ...]) -> Any:
    """Return what a split network gives; None where it says that no example showed the side."""
    try:
        return result(*call)
    except RuntimeError as problem:
        if "never checked" not in str(problem):
            raise
        return None


@pytest.mark.parametrize("network", HIDDEN, ids=lambda network: network.__name__)
def test_a_size_that_no_example_shows_is_right_or_an_error(network: Any) -> None:
    torch.manual_seed(0)
    model = network().eval()
    result = regraft.split(model, model.calls(), unseen="raise", cache=False, measure=False)
    calls = model.rare()
    answers = [call_or_refuse(result, call) for call in calls]
    assert any(answer is not None for answer in answers)
    for call, answer in zip(calls, answers, strict=True):
        assert answer is None or difference(answer, model(*call)) == ""
