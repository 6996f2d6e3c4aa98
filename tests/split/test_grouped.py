"""Splits of experts in groups, detection heads and constructors of public repositories."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import regraft  # noqa: E402
from split import grouped  # noqa: E402
from split.comparison import compare_on_calls  # noqa: E402

pytestmark = pytest.mark.usefixtures("without_gradients")


@pytest.mark.slow
@pytest.mark.parametrize("kind", grouped.PROGRAMS)
def test_groups_on_sizes_and_values_beyond_the_examples(kind: Any) -> None:
    compare_on_calls(kind)


@pytest.mark.parametrize("kind", grouped.REFUSED)
def test_refusals_name_place_and_reason(kind: Any) -> None:
    torch.manual_seed(0)
    calls = [kind.inputs(number) for number in range(12)]
    with pytest.raises(regraft.Unsplittable, match=grouped.REFUSED[kind]) as caught:
        regraft.split(kind().eval(), calls, cache=False)
    assert caught.value.path.endswith("grouped.py") and caught.value.line > 0


@pytest.mark.parametrize("sizes", [[1, 2], [5, -1], [4, 1]])
def test_sizes_that_are_not_those_of_parts_raise_as_in_torch(sizes: list[int]) -> None:
    model = grouped.ColumnGroups().eval()
    calls = [model.inputs(number) for number in range(12)]
    result = regraft.split(model, calls, cache=False)
    call = torch.randn(2, 4), torch.tensor(sizes)
    for network in (model, result):
        with pytest.raises(RuntimeError, match="split"):
            network(*call)
