"""Splits of small programs with deques, sets, sorts by a key, deleted slices, generators and
decorators, and values that may be None."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from split import containers, generators, misleading, optional_values  # noqa: E402
from split.comparison import compare_on_calls  # noqa: E402

PROGRAMS = [
    *containers.PROGRAMS,
    *generators.PROGRAMS,
    *misleading.PROGRAMS,
    *optional_values.PROGRAMS,
]


pytestmark = pytest.mark.usefixtures("without_gradients")


@pytest.mark.slow
@pytest.mark.parametrize("kind", PROGRAMS)
def test_containers_on_sizes_and_values_beyond_the_examples(kind: Any) -> None:
    compare_on_calls(kind)
