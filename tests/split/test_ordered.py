"""Single files of programs with lists of tuples, orders, sums of floats and results that may be
None."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import regraft  # noqa: E402
from regraft.splitting import Unsplittable  # noqa: E402
from regraft.splitting.checking.result_difference import difference  # noqa: E402
from split import ordered  # noqa: E402
from split.comparison import attempt, compare_on_calls  # noqa: E402

pytestmark = pytest.mark.usefixtures("without_gradients")


@pytest.mark.parametrize("kind", ordered.PROGRAMS)
def test_lists_of_a_single_file_beyond_the_examples(kind: Any) -> None:
    compare_on_calls(kind, single_file=True)


@pytest.mark.parametrize(
    ("kind", "message"),
    [(ordered.SumOfNone, "sum.. of no floats"), (ordered.SortsNaN, "NaN among")],
)
def test_what_depends_on_the_empty_list_or_on_nan_is_refused(kind: Any, message: str) -> None:
    calls = [(scale * torch.ones(2, 6),) for scale in (1.0, -1.0)]
    with pytest.raises(Unsplittable, match=message):
        regraft.split(kind().eval(), calls, single_file=True, cache=False)


@pytest.mark.parametrize("kind", range(4))
def test_where_python_raises_the_file_raises(kind: int) -> None:
    model = ordered.Rare().eval()
    calls = [ordered.Rare.inputs(number) for number in range(8)]
    result = regraft.split(model, calls, single_file=True, cache=False, unseen="raise")
    assert difference(result(*calls[kind]), model(*calls[kind])) == ""
    rare = torch.tensor([[-5.0 if kind == 2 else 300.0], [0.5], [1.0]]), torch.tensor(kind)
    assert isinstance(attempt(model, rare), Exception)
    assert isinstance(attempt(result, rare), Exception)
