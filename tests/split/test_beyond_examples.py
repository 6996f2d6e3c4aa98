"""Sizes, values and whole numbers beyond the examples: a split network gives what the original
gives, raises, or is refused."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import regraft  # noqa: E402
from regraft.splitting import Unsplittable  # noqa: E402
from regraft.splitting.checking.result_difference import difference  # noqa: E402
from split import domain  # noqa: E402

NETWORKS = [
    network
    for network in vars(domain).values()
    if inspect.isclass(network) and hasattr(network, "Inner")
]
# what is answered for every input, by islands or not, and what is refused; the others raise
ANSWERED = {
    domain.ChangedByDivision,
    domain.ClampedToAFraction,
    domain.FloorDivide,
    domain.FloorDivision,
    domain.FloorDivisionOfFloats,
    domain.LargeSum,
    domain.LogOfSigmoid,
    domain.Remainder,
    domain.RemainderOfFloats,
    domain.RoundedDown,
    domain.RowsOfAMask,
    domain.RunningSum,
    domain.ShiftedRight,
    domain.Sum,
    domain.TruncatedRemainder,
}
# what ONNX Runtime computes otherwise, or what ONNX has no operation for
EAGER = {
    domain.AddedInTheExponent,
    domain.Product,
    domain.RunningSumInTheExponent,
    domain.SignOfZero,
}
REFUSED = {
    domain.GradientsDecide,
    domain.OffsetDecides,
    domain.SqueezedMask,
    domain.StridesDecide,
    domain.ContainsInATensor,
    domain.ContainsInAnArray,
    domain.SmallestOfAnArray,
    domain.ValueAsText,
}


def outcomes(model: Any, **options: Any) -> list[str]:
    """Return "equal", "raises" or "differs" for each rare input, and [] for a refusal."""
    try:
        result = regraft.split(
            model, model.calls(), unseen="raise", cache=False, measure=False, **options
        )
    except Unsplittable:
        return []
    words = []
    for inputs in model.rare():
        arguments = inputs if isinstance(inputs, tuple) else (inputs,)
        try:
            answer = result(*arguments)
        except Exception:  # noqa: BLE001 - whatever the host or the runtime raises
            words.append("raises")
        else:
            words.append("differs" if difference(answer, model(*arguments)) else "equal")
    return words


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_no_answer_beyond_the_examples_is_wrong(network: Any) -> None:
    torch.manual_seed(0)
    words = outcomes(network().eval())
    assert "differs" not in words
    assert (not words) == (network in REFUSED)
    assert (set(words) == {"equal"}) == (network in ANSWERED | EAGER)


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_no_answer_of_a_single_file_is_wrong(network: Any) -> None:
    torch.manual_seed(0)
    words = outcomes(network().eval(), single_file=True)
    assert "differs" not in words
    assert network not in ANSWERED or set(words) == {"equal"}


def test_the_error_beyond_the_limits_names_line_sizes_and_remedy() -> None:
    model = domain.Threshold().eval()
    result = regraft.split(model, model.calls(), unseen="raise", cache=False, measure=False)
    with pytest.raises(
        ValueError,
        match=r"domain\.py:\d+: no example has such sizes.*x\.shape\[0\] <= 50.*example call",
    ):
        result(torch.randn(51, 4))
    torch.testing.assert_close(result(torch.randn(50, 4).abs()).shape, torch.Size([50, 4]))
