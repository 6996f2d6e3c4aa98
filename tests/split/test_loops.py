"""Splits of networks whose decoding loop, post-processing or solver is part of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import regraft  # noqa: E402
from regraft.splitting.checking.result_difference import difference  # noqa: E402
from split import loops  # noqa: E402


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    """Compute without gradients, as a split network does."""
    with torch.no_grad():
        yield


# the words of the refusals of those that cannot be split yet
REFUSED = {
    loops.CachedGeneration: "argument 'is_causal' must be bool",
    loops.TensorBeamSearch: "cannot be run on the example",
}


@pytest.mark.parametrize("kind", [kind for kind in loops.PROGRAMS if kind not in REFUSED])
def test_loops_on_sizes_and_values_beyond_the_examples(kind: Any) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    result = regraft.split(model, [kind.inputs(number) for number in range(12)], cache=False)
    for number in range(60):
        arguments = kind.inputs(number)
        assert difference(result(*arguments), model(*arguments)) == ""


@pytest.mark.parametrize("kind", REFUSED)
def test_refusals_name_place_and_reason(kind: Any) -> None:
    torch.manual_seed(0)
    calls = [kind.inputs(number) for number in range(12)]
    with pytest.raises(regraft.Unsplittable, match=REFUSED[kind]) as caught:
        regraft.split(kind().eval(), calls, cache=False)
    assert caught.value.path.endswith("loops.py") and caught.value.line > 0
