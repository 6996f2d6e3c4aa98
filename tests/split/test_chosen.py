"""Splits of programs in which paths choose a module, or functions decide by sizes that values
decide."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import regraft  # noqa: E402
from regraft.splitting import Unsplittable  # noqa: E402
from split import chosen  # noqa: E402
from split.comparison import compare_on_calls  # noqa: E402

pytestmark = pytest.mark.usefixtures("without_gradients")


@pytest.mark.slow
@pytest.mark.parametrize("kind", chosen.PROGRAMS)
@pytest.mark.parametrize("single_file", [False, True])
def test_choices_on_sizes_and_values_beyond_the_examples(kind: Any, single_file: bool) -> None:
    compare_on_calls(kind, unseen="raise", measure=False, single_file=single_file)


@pytest.mark.parametrize("kind", [chosen.ChosenLayer, chosen.OptionalLayer, chosen.BestPair])
def test_a_choice_of_paths(kind: Any) -> None:
    compare_on_calls(kind, unseen="raise", measure=False)


def refusal(kind: Any, **options: Any) -> str:
    """Return why a program cannot be split."""
    torch.manual_seed(0)
    calls = [kind.inputs(number) for number in range(8)]
    with pytest.raises(Unsplittable) as problem:
        regraft.split(kind().eval(), calls, cache=False, unseen="raise", **options)
    return str(problem.value)


def test_a_layer_that_an_iteration_chooses_for_the_next_is_refused() -> None:
    assert "layer has different types or shapes" in refusal(chosen.ChangesInALoop)


def test_a_list_that_is_held_twice_after_an_iteration_is_no_single_file() -> None:
    message = refusal(chosen.HeldTwiceLater, single_file=True)
    assert "a list that is held twice after an iteration" in message
