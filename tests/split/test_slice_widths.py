"""Splits of programs with slices of a known width, elements at numbers of the host, and caches of
tuples in tuples."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import regraft  # noqa: E402
from regraft.splitting.checking.result_difference import difference  # noqa: E402
from split import widths  # noqa: E402
from split.comparison import attempt, compare_on_calls  # noqa: E402

pytestmark = pytest.mark.usefixtures("without_gradients")


@pytest.mark.slow
@pytest.mark.parametrize("kind", widths.PROGRAMS)
@pytest.mark.parametrize("single_file", [False, True])
def test_widths_on_sizes_and_values_beyond_the_examples(kind: Any, single_file: bool) -> None:
    compare_on_calls(kind, unseen="raise", measure=False, single_file=single_file)


def test_a_slice_that_is_shorter_at_an_end_raises() -> None:
    torch.manual_seed(0)

    class Window(widths.Rows):
        def forward(self, x: Any) -> Any:
            start = int(x[:, 0].abs().sum()) // 5
            window = x[start : start + 2]
            return window.reshape(2, 6) if x.sum() > 0 else window.view(12)[:6]

    model = Window().eval()
    calls = [(torch.randn(3, 6).clamp(-1, 1),) for _ in range(12)]
    result = regraft.split(model, calls, cache=False, measure=False)
    with pytest.raises(ValueError, match=r"the size of this tensor is 2 in dimension 0"):
        result(torch.full((3, 6), 4.0))
    assert isinstance(attempt(model, (torch.full((3, 6), 4.0),)), RuntimeError)


def test_an_element_at_a_number_leaves_all_sizes_open() -> None:
    torch.manual_seed(0)
    model = widths.BoxesByScore().eval()
    calls = [widths.BoxesByScore.inputs(number) for number in range(8)]
    result = regraft.split(model, calls, cache=False, measure=False)
    boxes = torch.randn(131, 6)
    assert difference(result(boxes), model(boxes)) == ""


def test_a_row_at_a_number_is_given_for_a_single_row_too() -> None:
    torch.manual_seed(0)

    class Row(widths.Rows):
        def forward(self, x: Any) -> Any:
            number = int(x.abs().sum()) % x.shape[0]
            return self.a(x[number]) if x.sum() > 0 else x[number - 1]

    model = Row().eval()
    calls = [Row.inputs(number) for number in range(8)]
    result = regraft.split(model, calls, cache=False, measure=False)
    for rows in (torch.randn(1, 6), torch.ones(1, 6), torch.randn(300, 6)):
        assert difference(result(rows), model(rows)) == ""
