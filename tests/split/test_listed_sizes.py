"""What a report says of a network that takes only the sizes that its limits list."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
nn = torch.nn

import regraft  # noqa: E402
from regraft.report.split_text import summary_text  # noqa: E402
from regraft.splitting.compiling import size_limits  # noqa: E402
from regraft.splitting.compiling.listed_sizes import listed_sizes  # noqa: E402
from regraft.splitting.program.residual import Region  # noqa: E402


def sentences(*limits: str) -> list[str]:
    region = Region(0, [], ("state", "x"), (), ("net.py", 7), limits=list(limits))
    return listed_sizes([region, region], ["x"])


def test_sizes_are_listed_with_place_input_dimension_and_remedy() -> None:
    (sentence,) = sentences(
        "x.shape[0] == state.shape[0] and (state.shape[0] == 1) or"
        " x.shape[0] == state.shape[0] and (state.shape[0] != 1) and (state.shape[0] == 2)"
    )
    assert sentence.startswith("net.py:7: dimension 0 of state is 1 to 2; example calls")
    (sentence,) = sentences(
        "x.shape[0] == state.shape[0]", "state.shape[0] == 1 or state.shape[0] == 4"
    )
    assert sentence.startswith("net.py:7: dimension 0 of x is 1 or 4; ")
    assert "--dynamic" in sentence
    (sentence,) = sentences("1 <= x.shape[1] <= 3 or x.shape[1] == 9 or x.shape[1] == 17")
    assert "dimension 1 of x is 1 to 3, 9 or 17" in sentence
    assert "of x is 3;" in sentences("x.shape[2] == 3")[0]
    assert len(sentences("x.shape[0] == 3", "state.shape[0] == 2")) == 2


def test_sizes_without_end_are_not_listed() -> None:
    assert sentences("x.shape[0] == state.shape[0]") == []
    assert sentences("x.shape[0] <= 50", "x.shape[0] != 3") == []
    assert sentences("x.shape[0] == 1 or x.shape[0] > 4") == []
    assert sentences("(x.shape[0] % 3) == 0 or 2*x.shape[0] == 4") == []


class Doubling(nn.Module):
    """Doubles positive numbers."""

    def forward(self, x: Any) -> Any:
        y = x.tanh()
        return y * 2 if y.mean() > 0 else y


def refuse(*_: Any) -> Any:
    """Raise TypeError, as a run of code that makes a text of a symbolic size."""
    raise TypeError("a symbolic size as text")


def test_the_output_says_which_sizes_a_network_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size_limits, "symbolic_guards", refuse)
    calls = [(scale * torch.ones(count, 4),) for scale in (1.0, -1.0) for count in (1, 2, 70)]
    result = regraft.split(Doubling().eval(), calls, cache=False, measure=False)
    (sentence,) = result.report.listed_sizes
    assert "test_listed_sizes.py:" in sentence
    assert "dimension 0 of x is 1 to 64 or 70; example calls of further sizes" in sentence
    text = summary_text(vars(result.report))
    assert f"takes only these sizes: {sentence}" in text.splitlines()
    with pytest.raises(ValueError, match="no example has such sizes"):
        result(torch.ones(65, 4))
