"""Splits of programs that map, filter, compare, cut and search elements, also as single files."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from split import elements, optional_values  # noqa: E402
from split.comparison import compare_on_calls  # noqa: E402

pytestmark = pytest.mark.usefixtures("without_gradients")


@pytest.mark.parametrize("single_file", [False, True])
@pytest.mark.parametrize("kind", elements.PROGRAMS)
def test_elements_on_sizes_and_values_beyond_the_examples(kind: Any, single_file: bool) -> None:
    compare_on_calls(kind, single_file=single_file)


@pytest.mark.parametrize(
    "kind",
    [
        elements.MaskOrNone,
        optional_values.BestRow,
        optional_values.StateOfTwo,
    ],
)
def test_a_single_file_takes_variables_that_may_be_none(kind: Any) -> None:
    compare_on_calls(kind, single_file=True)
