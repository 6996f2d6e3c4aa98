"""Splits of networks whose decoding loop, post-processing or solver is part of them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import regraft  # noqa: E402
from split import loops  # noqa: E402
from split.comparison import compare_on_calls  # noqa: E402

pytestmark = pytest.mark.usefixtures("without_gradients")


# the words of the refusals of those that cannot be split yet
REFUSED = {
    loops.TensorBeamSearch: "Expected reduction dim to be specified",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in loops.PROGRAMS if kind not in REFUSED])
def test_loops_on_sizes_and_values_beyond_the_examples(kind: Any) -> None:
    compare_on_calls(kind)


@pytest.mark.parametrize("kind", REFUSED)
def test_refusals_name_place_and_reason(kind: Any) -> None:
    torch.manual_seed(0)
    calls = [kind.inputs(number) for number in range(12)]
    with pytest.raises(regraft.Unsplittable, match=REFUSED[kind]) as caught:
        regraft.split(kind().eval(), calls, cache=False)
    assert caught.value.path.endswith("loops.py") and caught.value.line > 0
