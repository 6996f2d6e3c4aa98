"""Splits of programs that pad to a multiple: sizes computed from open ones are open, too."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from split import padded  # noqa: E402
from split.comparison import compare_on_calls  # noqa: E402

pytestmark = pytest.mark.usefixtures("without_gradients")


@pytest.mark.parametrize("kind", padded.PROGRAMS)
def test_rows_padded_to_a_multiple_beyond_the_examples(kind: Any) -> None:
    compare_on_calls(kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", padded.FURTHER_PROGRAMS)
def test_many_paddings_and_a_size_from_an_island_beyond_the_examples(kind: Any) -> None:
    compare_on_calls(kind, measure=False)
