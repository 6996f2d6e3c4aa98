"""Splits of small programs with deques, sets, sorts by a key, deleted slices, generators and
decorators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import regraft  # noqa: E402
from regraft.splitting.checking.result_difference import difference  # noqa: E402
from split import containers, generators, misleading  # noqa: E402

PROGRAMS = [*containers.PROGRAMS, *generators.PROGRAMS, *misleading.PROGRAMS]


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    """Compute without gradients, as a split network does."""
    with torch.no_grad():
        yield


@pytest.mark.parametrize("kind", PROGRAMS)
def test_containers_on_sizes_and_values_beyond_the_examples(kind: Any) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    result = regraft.split(model, [kind.inputs(number) for number in range(12)], cache=False)
    for number in range(60):
        arguments = kind.inputs(number)
        assert difference(result(*arguments), model(*arguments)) == ""
