"""Test changes that act where several arguments of a call have another value at once, and the
static analysis that tells which arguments these are."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from verdicts import verdict_on

from regraft.verification import Verdict

pytest.importorskip("torch")

import torch

from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_outcomes import Target
from regraft.verification.child.checks.argument_combinations import (
    changed_names,
    combined_calls,
    sets_read_together,
)
from regraft.verification.child.checks.argument_reads import ArgumentReads, argument_reads
from regraft.verification.child.checks.argument_variants import literal_choices
from regraft.verification.child.checks.attribute_variants import assignments_of

pytestmark = pytest.mark.usefixtures("here")

MODEL = """\
import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, dim=8, gated=False):
        super().__init__()
        self.gated = gated
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, {arguments}):
        y = self.proj(x)
{body}
"""
FLAGS = "pool=False, scaled=False, log=False"
POOL = "        if pool:\n            y = y.mean(1)\n"
SCALE = "        if scaled:\n            y = F.normalize(y, dim=-1)\n"
MASK = "        if mask is not None:\n            y = y * mask\n"
BIAS = "        if bias is not None:\n            y = y + bias\n"
# arguments, the lines before and after
WRONG = {
    "two flags": (FLAGS, f"{POOL}{SCALE}        return y", f"{SCALE}{POOL}        return y"),
    "three flags of a condition": (
        FLAGS,
        "        return y.exp() if pool and scaled and log else y",
        "        return y.abs() if pool and scaled and log else y",
    ),
    "a mask and a bias": (
        "mask=None, bias=None",
        f"{MASK}{BIAS}        return y",
        f"{BIAS}{MASK}        return y",
    ),
    "two numbers": (
        "scale=1.0, shift=0.0",
        "        return y * scale + shift",
        "        return (y + shift) * scale",
    ),
    "a flag of what follows the changed lines": (
        "residual=None, prenorm: bool = False",
        "        if residual is not None:\n            x = x + residual\n"
        "        y = self.proj(x)\n        return (y, x) if prenorm else y",
        "        total = x if residual is None else x + residual\n"
        "        y = self.proj(total)\n        return (y, x) if prenorm else y",
    ),
    "an attribute and an argument": (
        "condition=None",
        "        if condition is not None:\n            y = y * condition\n"
        "            if self.gated:\n                y = y + x\n        return y",
        "        if condition is not None:\n            y = y * condition\n"
        "            if self.gated:\n                y = y + self.proj(x)\n        return y",
    ),
}
RIGHT = {
    "flags": (
        FLAGS,
        "        return -y if pool and scaled else y",
        "        return -y if scaled and pool else y",
    ),
    "tensors": (
        "mask=None, bias=None",
        f"{MASK}{BIAS}        return y",
        f"{MASK}        return y if bias is None else bias + y",
    ),
    "arguments that the original refuses together": (
        "mask=None, bias=None",
        "        if mask is not None and bias is not None:\n"
        "            raise ValueError('give a mask or a bias')\n"
        f"{MASK}{BIAS}        return y",
        "        if bias is not None and mask is not None:\n"
        "            raise ValueError('give a mask or a bias')\n"
        f"{BIAS}{MASK}        return y",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", WRONG)
def test_a_change_that_acts_for_arguments_together_is_refuted(case: str, tmp_path: Path) -> None:
    verdict = _verdict(tmp_path, *WRONG[case])
    assert verdict.status == "refuted", verdict


@pytest.mark.slow
@pytest.mark.parametrize("case", RIGHT)
def test_a_right_change_of_several_arguments_is_proved(case: str, tmp_path: Path) -> None:
    verdict = _verdict(tmp_path, *RIGHT[case])
    assert verdict.status == "proved", verdict


@pytest.mark.slow
def test_arguments_that_cannot_be_given_together_are_named(tmp_path: Path) -> None:
    body = (
        "        if mask is not None and bias is not None:\n"
        "            y = y * mask.view(7, 5, -1) + bias.view(-1)\n        return y"
    )
    after = body.replace("y * mask.view(7, 5, -1) + bias.view(-1)", "y * mask.view(7, 5, -1)")
    verdict = _verdict(tmp_path, "mask=None, bias=None", body, after)
    assert verdict.status == "unproven", verdict


def _verdict(folder: Path, arguments: str, before: str, after: str) -> Verdict:
    """Return the verdict on the model with some arguments whose last lines change."""
    text = MODEL.format(arguments=arguments, body=before)
    return verdict_on(folder, text, before, after)


def _reads(source: str, first: int, last: int) -> ArgumentReads:
    """Return the reads of the arguments of `forward` in the class of a source by some lines."""
    return argument_reads(ast.parse(source).body[0], [(first, last)], "forward")


def test_reads_come_from_lines_tests_variables_methods_and_later_statements() -> None:
    source = (
        "class Layer:\n"
        "    def forward(self, x, mask=None, bias=None, flag=False, late=False, other=None):\n"
        "        y = x if mask is None else x * mask\n"
        "        if flag and self.causal:\n"
        "            z = y + 1\n"
        "        return self.join(z, bias) if late else z\n"
        "    def join(self, left, right):\n"
        "        return left + right\n"
    )
    reads = _reads(source, 5, 5)
    assert reads.names == ("flag", "x", "mask", "bias", "late")
    assert reads.direct == {"flag"}
    assert reads.attributes == {"causal"}
    assert _reads(source, 8, 8).direct == {"bias"}
    assert _reads(source, 6, 6).direct == {"late"}
    assert not argument_reads(None, [(1, 9)], "forward").names


def test_sets_read_together_are_pairs_and_conditions() -> None:
    reads = ArgumentReads(
        ("a", "b", "c"), frozenset("abc"), frozenset(), frozenset((frozenset("abc"),))
    )
    sets = sets_read_together(frozenset("abc"), reads)
    assert set(sets) == {frozenset("ab"), frozenset("ac"), frozenset("bc"), frozenset("abc")}
    assert sets_read_together(frozenset("a"), reads) == ()


def _join(x: Any, first: Any = None, second: Any = None, flag: bool = False) -> Any:
    """Return the sum of the tensors that are given."""
    if first is not None and second is not None:
        raise ValueError("give one of first and second")
    return x + sum(part for part in (first, second) if part is not None)


def test_combined_calls_leave_out_what_is_given_and_note_what_is_refused() -> None:
    reads = ArgumentReads(("first", "second", "flag"), frozenset(("first", "second")))
    target = Target(None, "", _join, __import__(__name__))
    call = Call((torch.ones(2, 3),), {"first": torch.ones(2, 3)})
    combinations = combined_calls(call, target, reads)
    assert "first = None" in [made.label for made in combinations.calls]
    assert frozenset(("first", "second")) not in [
        changed_names(made, _join, reads) for made in combinations.calls
    ]
    refused = combined_calls(Call((torch.ones(2, 3),), {}), target, reads).refused
    assert frozenset(("first", "second")) in refused
    assert changed_names(call, _join, reads) == {"first"}


def test_labels_tell_assignments_and_literals_their_choices() -> None:
    label = "self.a = 1.5 and self.b = False with the argument mask given, shape [2]"
    assert assignments_of(label) == (("a", "1.5"), ("b", "False"))
    assert assignments_of("mask given") == ()
    assert literal_choices("Literal['mean', 'max'] | None") == ("mean", "max")
    assert literal_choices("Literal[Kind.MEAN]") == literal_choices(str) == ()
