"""Splits of small programs with the statements that ordinary code has around its decisions."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import regraft  # noqa: E402
from regraft.splitting.checking.result_difference import difference  # noqa: E402
from split import everyday  # noqa: E402
from split.language import Layers  # noqa: E402

NETWORKS = [
    kind
    for kind in vars(everyday).values()
    if inspect.isclass(kind) and issubclass(kind, Layers) and kind is not Layers
]


pytestmark = pytest.mark.usefixtures("without_gradients")


@pytest.mark.parametrize("kind", NETWORKS)
def test_everyday_code_on_sizes_and_values_beyond_the_examples(kind: Any) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    calls = [(torch.randn(rows, 6),) for rows in getattr(kind, "ROWS", (2, 3))]
    result = regraft.split(model, calls, cache=False)
    assert not result.report.unseen and not result.report.islands
    for number in range(50):
        x = torch.randn(1 + number % 5 * calls[-1][0].shape[0] // 3, 6) * (0.1, 1, 3, 1)[number % 4]
        assert difference(result(x), model(x)) == ""


def test_the_report_says_what_is_left_out() -> None:
    result = regraft.split(everyday.Logs().eval(), [(torch.randn(2, 6),)] * 2, cache=False)
    texts = [text.rpartition(": ")[2] for text in result.report.left_out]
    assert sorted(texts) == [
        "logger.debug() is left out",
        "logger.info() is left out",
        "logger.warning() is left out",
    ]


def test_a_side_that_sizes_decide_raises_where_no_example_took_it() -> None:
    model = everyday.DecidesBySize().eval()
    result = regraft.split(model, [(torch.randn(2, 6),), (torch.randn(3, 6),)], cache=False)
    assert len(result.report.unseen) == 1 and "no checked input" in result.report.unseen[0]
    for x in (torch.randn(4, 6), -torch.ones(1, 6), torch.ones(1, 6)):
        assert difference(result(x), model(x)) == ""
    for x in (torch.randn(8, 6), torch.randn(9, 6)):
        with pytest.raises((RuntimeError, ValueError)):
            result(x)
    calls = [(torch.randn(rows, 6),) for rows in (2, 3, 8, 9)]
    both = regraft.split(model, calls, cache=False)
    assert not both.report.unseen
    for rows in (1, 2, 7, 8, 9, 20):
        x = torch.randn(rows, 6)
        assert difference(both(x), model(x)) == ""


def test_a_side_that_sizes_decide_by_values_is_refused_without_an_example() -> None:
    with pytest.raises(regraft.Unsplittable, match="no checked input"):
        regraft.split(everyday.DecidesByFound().eval(), [(torch.randn(2, 6),)] * 2, cache=False)


class TwiceRare(torch.nn.Module):
    def forward(self, x):
        if x.abs().sum() > 1e9:
            x = x * 2
        if x.abs().sum() < -1:
            x = x * 3
        return x


def test_all_sides_without_an_input_are_named_at_once() -> None:
    with pytest.raises(regraft.Unsplittable) as refusal:
        regraft.split(TwiceRare().eval(), [(torch.randn(2, 6),)] * 2, cache=False)
    first = inspect.getsourcelines(TwiceRare.forward)[1] + 1
    further = f"1 further side without such an input: line {first + 2}"
    assert refusal.value.line == first
    assert str(refusal.value).endswith(f"--unseen raise, where none can); {further}")
