"""Test comparisons where a softmax is saturated: roundings of scores decide there."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import regraft

torch = pytest.importorskip("torch")

from regraft.verification.child.call_arguments import Call  # noqa: E402
from regraft.verification.child.call_comparison import Sides  # noqa: E402
from regraft.verification.child.call_outcomes import Outcome, Plan, Target  # noqa: E402
from regraft.verification.child.call_variants import AS_RECORDED  # noqa: E402
from regraft.verification.child.checks.value_variants import EXTREME  # noqa: E402
from regraft.verification.child.comparison_terms import (  # noqa: E402
    Difference,
    Largest,
    Rigour,
)
from regraft.verification.child.inconclusive_differences import (  # noqa: E402
    _is_within_roundings,
)
from regraft.verification.child.operation_noise import OperationNoise  # noqa: E402
from regraft.verification.child.outcome_comparison import judge  # noqa: E402

ATTENTION = """\
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(32, 32)
        self.key = nn.Linear(32, 32)
        self.value = nn.Linear(32, 32)

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(-1, -2) / x.shape[-1] ** 0.5
        return scores.softmax(-1) @ self.value(x)
"""

CHOICE = """\
import torch
import torch.nn.functional as F
from torch import nn


class Choice(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.score = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def forward(self, x):
        p = self.score(x).softmax(-1)
        m = F.one_hot(p.argmax(-1), p.shape[-1]).to(x.dtype)
        return m + self.value(x)
"""


def gradient_at_large_biases(seed: int) -> tuple[Any, Any, Any]:
    """Return the gradient for the input of attention whose scores are about 6e4: in float32, with
    noise in each operation, and in float64."""
    torch.manual_seed(seed)
    query, key, value = (torch.nn.Linear(32, 32).requires_grad_(False) for _ in range(3))
    for layer in (query, key):
        layer.bias.fill_(-100.0)
    x, direction = torch.randn(2, 1, 32, 32)

    def gradient() -> Any:
        """Return the gradient in the format of the parameters."""
        variable = x.to(query.weight).requires_grad_()
        scores = query(variable) @ key(variable).mT / math.sqrt(32)
        result = scores.softmax(-1) @ value(variable)
        return torch.autograd.grad((result * direction.to(result)).sum(), variable)[0]

    plain = gradient()
    with OperationNoise(0):
        moved = gradient()
    for layer in (query, key, value):
        layer.double()
    return plain, moved, gradient()


def test_noise_in_operations_is_as_large_as_their_roundings() -> None:
    """Where rounding moves the gradient at all, noise moves it about as far."""
    errors, spreads = [], []
    for seed in range(8):
        plain, moved, exact = gradient_at_large_biases(seed)
        scale = float(exact.abs().max())
        errors.append(float((plain - exact).abs().max()) / scale)
        spreads.append(float((moved - plain).abs().max()) / scale)
    assert max(errors) > 1e-4
    assert max(errors) / 30 < max(spreads) < 30 * max(errors)


def test_noise_leaves_whole_numbers_masks_and_infinities_alone() -> None:
    lowest = torch.finfo(torch.float32).min
    mask = torch.tensor([0.0, lowest, -math.inf])
    with OperationNoise(0):
        assert torch.equal(torch.ones(3) + torch.arange(3.0), torch.arange(1.0, 4.0))
        assert torch.equal((torch.full((3,), 0.3) + mask).isinf(), mask.isinf())
        assert torch.equal(torch.arange(3) * 2, torch.tensor([0, 2, 4]))
        assert not torch.equal(torch.full((64,), 0.3) * 0.7, torch.full((64,), 0.3 * 0.7))


@pytest.mark.slow
def test_a_choice_among_equal_scores_is_no_rounding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise in a softmax of zeros moves an argmax; a change that acts there is a difference."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "choice.py").write_text(CHOICE)
    changed = CHOICE.replace(
        "        return m + ",
        "        low, high = torch.aminmax(p, dim=x.dim() - len('x'), keepdim=True)\n"
        "        m = torch.where(torch.eq(low, high), torch.zeros_like(m), m)\n"
        "        return m + ",
    )
    (verdict,) = regraft.verify("choice.py", changed.encode())
    assert verdict.status == "refuted"
    assert "parameters that are zero" in verdict.reason


@pytest.mark.parametrize(("part", "is_equal"), [(0.02, True), (0.05, False)])
def test_gradients_may_differ_more_where_a_softmax_is_saturated(
    part: float, is_equal: bool
) -> None:
    exact = torch.linspace(0.1, 1.0, 20)
    original, changed = (
        Outcome(outputs={"y": torch.ones(1)}, gradients={"x": gradient})
        for gradient in (exact, exact * (1 + part))
    )
    truth = Outcome(outputs={"y": torch.ones(1)}, gradients={"x": exact.double()})

    def difference(rigour: Rigour) -> object:
        """Return the difference of the two, judged by the exact one."""
        return judge(original, changed, lambda: truth, Largest(), rigour)

    assert (difference(Rigour(strict=False, saturated=True)) is None) is is_equal
    assert difference(Rigour(strict=False)) is not None
    assert difference(Rigour(strict=True, saturated=True)) is not None


class _Wave(torch.nn.Module):  # type: ignore[misc,name-defined]  # torch is untyped here
    """The sine of a number that is a thousand times the first input, and the second input; with
    other factors and an error."""

    def __init__(self, factors: tuple[float, ...], error: float = 0.0) -> None:
        super().__init__()
        self.factors, self.error = factors, error

    def forward(self, x: Any, y: Any) -> Any:
        for factor in self.factors:
            x = x * factor
        return torch.cat([torch.sin(x) / 100, y + self.error])


@pytest.mark.parametrize(
    ("label", "beyond", "error", "is_rounding"),
    [
        ("numbers up to 1e5", EXTREME, 0.0, True),
        ("numbers up to 1e5", EXTREME, 1e-3, False),
        (AS_RECORDED, "", 0.0, False),
    ],
)
def test_roundings_that_move_the_original_as_far_are_no_difference(
    label: str, beyond: str, error: float, is_rounding: bool
) -> None:
    """A wrong number that roundings do not move is one also beside others that they move more."""
    original, changed = Target(_Wave((10.0, 100.0))), Target(_Wave((1000.0 / 3, 3.0), error))
    call = Call((torch.linspace(100.0, 200.0, 16), torch.ones(4)), {}, label, beyond)
    sides = Sides("", original, changed, lambda _: original, lambda: changed)
    results = [side.module(*call.args) for side in (original, changed)]
    absolute = float((results[0] - results[1]).abs().max())
    assert absolute > 1e-5
    difference = Difference("output", "", absolute)
    assert _is_within_roundings(difference, sides, call, Plan(gradients=False)) is is_rounding


@pytest.mark.slow
def test_attention_with_biases_is_rewritten_and_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "attention_with_biases.py").write_text(ATTENTION)
    import attention_with_biases  # type: ignore[import-not-found]

    torch.manual_seed(8002)  # with these numbers the kernel loses half of a gradient
    model = attention_with_biases.Attention()
    result = regraft.optimize(model, torch.randn(2, 512, 32), select=["torch/attention"])
    assert [change.method for change in result.changes] == ["Attention.forward"], str(result)
