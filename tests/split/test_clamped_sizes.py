"""Sizes that are equal in all examples because a bound decides them: a split network gives what the
original gives, or raises an error of Regraft that says what to do; it never answers otherwise."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import regraft  # noqa: E402
from regraft.splitting.checking.result_difference import difference  # noqa: E402
from split import clamped  # noqa: E402
from split.comparison import attempt  # noqa: E402

pytestmark = pytest.mark.usefixtures("without_gradients")

BY_NAME = {network.__name__: network for network in clamped.NETWORKS}


@pytest.mark.slow
@pytest.mark.parametrize("single_file", [False, True], ids=["directory", "file"])
@pytest.mark.parametrize("name", BY_NAME)
def test_no_size_below_a_bound_gives_a_wrong_answer(name: str, single_file: bool) -> None:
    torch.manual_seed(0)
    model = BY_NAME[name]().eval()
    calls = model.calls()
    result = regraft.split(
        model, calls, unseen="raise", cache=False, measure=False, single_file=single_file
    )
    answers = [(attempt(result, call), attempt(model, call)) for call in [*calls, *model.rare()]]
    assert all(difference(*pair) == "" for pair in answers[: len(calls)])
    for got, expected in answers[len(calls) :]:
        if isinstance(got, Exception):
            assert type(got) in (AssertionError, RuntimeError, ValueError)
            assert name not in clamped.ALWAYS_EQUAL or isinstance(expected, Exception)
        else:
            assert not isinstance(expected, Exception) and difference(got, expected) == ""


def test_an_example_of_the_other_size_is_the_remedy() -> None:
    torch.manual_seed(0)
    model = clamped.FirstThree().eval()
    result = regraft.split(model, [*model.calls(), *model.rare()[:4]], cache=False, measure=False)
    assert all(difference(result(*call), model(*call)) == "" for call in model.rare())


@pytest.mark.parametrize("single_file", [False, True], ids=["directory", "file"])
def test_the_error_names_place_sizes_and_remedy(single_file: bool) -> None:
    torch.manual_seed(0)
    model = clamped.CutToSize().eval()
    result = regraft.split(
        model, model.calls(), cache=False, measure=False, single_file=single_file
    )
    with pytest.raises(
        (RuntimeError, ValueError), match=r"(?s)clamped.py:\d+|x of .*split again with"
    ):
        result(*model.rare()[2])
    with pytest.raises(ValueError, match=r"x is float32 \(6, 3\); the network was split for"):
        result(torch.randn(6, 3))
