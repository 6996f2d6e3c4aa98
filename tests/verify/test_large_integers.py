"""Test whole numbers that floating numbers round, numbers with a meaning of their own, real numbers
for truth values, and number formats under another option."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from verdicts import verdict_on  # noqa: E402

from regraft.verification.child.call_arguments import Call  # noqa: E402
from regraft.verification.child.checks.format_variants import (  # noqa: E402
    calls_in_bfloat16,
    calls_with_real_numbers,
    formats_to_try,
)
from regraft.verification.child.checks.value_variants import (  # noqa: E402
    calls_with_a_mark,
    calls_with_large_integers,
)

pytestmark = pytest.mark.usefixtures("here")

IMPORTS = "import torch\nfrom torch import nn\n\n\n"
HASHED = f"""\
{IMPORTS}class Hashed(nn.Module):
    def __init__(self, buckets=64, dim=8):
        super().__init__()
        self.buckets = buckets
        self.table = nn.Embedding(buckets, dim)

    def forward(self, input_ids):
        return self.table((input_ids * 31 + 7) % self.buckets)
"""
LOSS = f"""\
{IMPORTS}class Loss(nn.Module):
    def __init__(self, weight=0.5):
        super().__init__()
        self.weight = weight

    def forward(self, logits, labels):
        counted = labels != -100
        chosen = logits.log_softmax(-1).gather(-1, labels.clamp(min=0).unsqueeze(-1))
        loss = -self.weight * chosen.squeeze(-1)
        return (loss * counted).sum() / counted.sum()
"""
FILL = f"{IMPORTS}def fill(x, mask):\n    return x.masked_fill(mask, 0)\n"
NORM = f"""\
{IMPORTS}class Norm(nn.Module):
    def __init__(self, dim=16, cast_after=False):
        super().__init__()
        self.cast_after = cast_after
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        hidden = x.float()
        hidden = hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-6)
        if self.cast_after:
            return (self.weight * hidden).to(x.dtype)
        return self.weight * hidden.to(x.dtype)
"""
WRONG = {
    "ids in float64": (
        HASHED,
        "(input_ids * 31 + 7) % self.buckets",
        "((input_ids.double() * 31 + 7) % self.buckets).long()",
    ),
    "ids in float32": (
        HASHED,
        "(input_ids * 31 + 7) % self.buckets",
        "torch.remainder(input_ids * 31.0 + 7, self.buckets).long()",
    ),
    "labels that are left out": (LOSS, "/ counted.sum()", "/ counted.numel()"),
    "a product with a mask": (FILL, "x.masked_fill(mask, 0)", "x * ~mask"),
    "a cast under an option": (
        NORM,
        "return (self.weight * hidden).to(x.dtype)",
        "return self.weight * hidden.to(x.dtype)",
    ),
}


def test_large_integers_are_rounded_by_floating_numbers() -> None:
    ids = torch.arange(6)
    rows = [call.args[0] for call in calls_with_large_integers(Call((ids,), {}))]
    for row, dtype in zip(rows, (torch.float32, torch.float64), strict=True):
        assert not torch.equal(row.to(dtype).long(), row)
    assert not list(calls_with_large_integers(Call((ids.int(),), {})))


def test_a_mark_stands_among_integers() -> None:
    (call,) = calls_with_a_mark(Call((torch.arange(6), torch.ones(2)), {}), -100)
    assert call.args[0].tolist() == [-100, 1, 2, 3, 4, -100]
    assert not list(calls_with_a_mark(Call((torch.ones(2),), {}), -100))


def test_real_numbers_stand_for_truth_values_where_there_are_no_others() -> None:
    mask = torch.tensor([True, False])
    calls = list(calls_with_real_numbers(Call((mask, mask, torch.arange(2)), {})))
    assert [[tensor.dtype for tensor in call.args] for call in calls] == [
        [torch.float32, torch.bool, torch.int64],
        [torch.bool, torch.float32, torch.int64],
    ]
    assert not list(calls_with_real_numbers(Call((mask, torch.ones(2)), {})))


def test_inputs_are_in_bfloat16_where_the_text_names_formats() -> None:
    call = Call((torch.randn(2), torch.arange(2)), {})
    (other,) = calls_in_bfloat16(call, formats_to_try("x.to(y.dtype)"))
    assert [tensor.dtype for tensor in other.args] == [torch.bfloat16, torch.int64]
    assert not list(calls_in_bfloat16(call, formats_to_try("x + y")))


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_wrong_edits_are_refuted(tmp_path: Path, name: str) -> None:
    assert verdict_on(tmp_path, *WRONG[name]).status == "refuted"


@pytest.mark.slow
def test_a_right_edit_of_hashed_ids_is_proved(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, HASHED, "(input_ids * 31 + 7)", "(7 + 31 * input_ids)")
    assert verdict.status == "proved"
