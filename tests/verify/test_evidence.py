"""Test the evidence of a proof: conditions that took every result, killed mutants, a judge of its
own."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from regraft.source.object_reference import load_source
from regraft.verification import Verdict, verify
from regraft.verification.definition_changes import find_changes

pytest.importorskip("torch")

import torch

from regraft.verification.child.call_outcomes import Outcome
from regraft.verification.child.checks import mutants
from regraft.verification.child.checks.condition_coverage import Conditions
from regraft.verification.child.checks.mutants import Mutants, mutant_in_place, mutants_of
from regraft.verification.child.checks.process_reads import new_process_reads
from regraft.verification.child.comparison_terms import Largest, Rigour
from regraft.verification.child.judge_process import Judge

pytestmark = pytest.mark.usefixtures("here")

NORM = """\
import os
import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, dim=16, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return x * scale * self.weight
"""
RETURN = "return x * scale * self.weight"
UNDECIDED = {
    f"{RETURN} * (1 - 0.1 * (x.shape[1] > 10**5))": "`x.shape[1] > 10 ** 5` never was true",
    f"{RETURN} * min(1, 9999999 // x.shape[1])": (
        "`min(1, 9999999 // x.shape[1])` never gave its second operand"
    ),
    f"{RETURN} * (1 + 0.1 * (not hasattr(x, 'shape')))": "never was true",
    f"{RETURN} * (1 + 0.1 * len(os.environ.get('SPEED', '')))": (
        "line 14 reads `os.environ`, which no input controls"
    ),
}
PATCHES = {
    "a method that the judge would use": "torch.Tensor.sub = lambda first, second: first * 0",
    "a function of the verifier": (
        "import regraft.verification.child.result_comparison as judge\n"
        "judge.close = lambda *_: True"
    ),
    "a function that the verifier shares": (
        "import regraft.execution.compare as judge\njudge.are_equal = lambda *_, **__: True"
    ),
    "a method of the verifier": (
        "import regraft.verification.child.judge_process as own\n"
        "own.Judge.__call__ = lambda *_, **__: None"
    ),
    "what reads the judge's answers": (
        "import json\njson.loads = lambda _: {'difference': None, 'largest': {}}"
    ),
}
HIDDEN = """

def _remembering():
    memory = {}

    def result(x, y):
        if torch.is_grad_enabled():
            return y
        if memory.get("x") is x:
            return memory["y"]
        memory["x"], memory["y"] = x, y.clone()
        return y

    return result


_result = _remembering()
"""


def verdicts(tmp_path: Path, changed: str, original: str = NORM) -> tuple[Verdict, ...]:
    """Return the verdicts on a changed text."""
    path = tmp_path / "norm.py"
    path.write_text(original)
    return verify(path, changed.encode())


@pytest.mark.slow
@pytest.mark.parametrize("after", UNDECIDED)
def test_what_no_input_decides_is_not_proved(after: str, tmp_path: Path) -> None:
    (verdict,) = verdicts(tmp_path, NORM.replace(RETURN, after))
    assert verdict.status == "unproven"
    assert UNDECIDED[after] in verdict.reason


@pytest.mark.parametrize("case", PATCHES)
def test_a_file_that_replaces_what_compares_is_refuted(case: str, tmp_path: Path) -> None:
    changed = NORM.replace(RETURN, f"{RETURN} * 1.01\n\n\n{PATCHES[case]}")
    assert {verdict.status for verdict in verdicts(tmp_path, changed)} == {"refuted"}


def test_a_result_that_is_remembered_for_an_object_is_refuted(tmp_path: Path) -> None:
    changed = NORM.replace(RETURN, "return _result(x, x * scale * self.weight)") + HIDDEN
    verdicts_by_name = {verdict.definition: verdict for verdict in verdicts(tmp_path, changed)}
    assert verdicts_by_name["Norm"].status == "refuted"
    assert "of two results" in verdicts_by_name["Norm"].reason


def test_nan_on_one_side_is_named(tmp_path: Path) -> None:
    (verdict,) = verdicts(
        tmp_path, NORM.replace(RETURN, "return torch.nan_to_num(x * scale) * self.weight")
    )
    assert verdict.status == "refuted"
    assert "NaN on one side, that of the original" in verdict.reason


@pytest.mark.slow
def test_hooks_count_only_in_the_strict_contract(tmp_path: Path) -> None:
    original = """\
from torch import nn


class Block(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))

    def forward(self, x):
        return x + self.net(x)
"""
    unrolled = (
        "y = x\n        for layer in self.net:\n            y = layer(y)\n        return x + y"
    )
    path = tmp_path / "block.py"
    path.write_text(original)
    changed = original.replace("return x + self.net(x)", unrolled).encode()
    (strict,) = verify(path, changed)
    assert strict.status == "refuted"
    assert "hooks on 'net'" in strict.reason
    assert "--contract results" in strict.reason
    (results,) = verify(path, changed, contract="results")
    assert (results.status, results.evidence["contract"]) == ("proved", "results")
    (wrong,) = verify(
        path, changed.replace(b"return x + y", b"return x + y * 1.001"), contract="results"
    )
    assert wrong.status == "refuted"


def versions(tmp_path: Path, before: str, after: str) -> tuple[ModuleType, ModuleType, tuple]:  # type: ignore[type-arg]
    """Return the modules of both versions, and the changes."""
    paths = tmp_path / "before.py", tmp_path / "after.py"
    for path, text in zip(paths, (before, after), strict=True):
        path.write_text(text)
    modules = [load_source(path, f"{path.stem}_{tmp_path.name}") for path in paths]
    return modules[0], modules[1], find_changes(before.encode(), after.encode())


CHOICES = """\
import torch


def choose(x, n, mask):
    return x
"""


def test_conditions_report_the_results_that_they_took(tmp_path: Path) -> None:
    after = CHOICES.replace(
        "return x",
        "y = torch.where(mask, x, 0 * x).clamp(-1, 1)\n    return y * min(n, 3) * (1 + (n == 4))",
    )
    before, changed, changes = versions(tmp_path, CHOICES, after)
    conditions = Conditions(changed, changes, before)
    x = torch.tensor([0.5, -2.0])
    assert conditions.gaps("choose") == ()  # nothing has run
    with conditions:
        changed.choose(x, 2, torch.tensor([True, True]))
    unchanged = "was another number than its first operand"  # a factor of one, and a term of zero
    assert sorted(gap.partition("never ")[2] for gap in conditions.gaps("choose")) == [
        "gave its second operand",
        "lowered a value",
        unchanged,
        unchanged,
        "was false",
        "was true",
    ]
    with conditions:
        changed.choose(2 - x, 4, torch.tensor([True, False]))
    assert conditions.gaps("choose") == ()


def test_conditions_that_the_other_version_has_are_left_out(tmp_path: Path) -> None:
    before = CHOICES.replace("return x", "return x * (n > 64)")
    after = CHOICES.replace("return x", "m = n\n    return x * (m > 64)")
    original, changed, changes = versions(tmp_path, before, after)
    conditions = Conditions(changed, changes, original)
    with conditions:
        changed.choose(1.0, 1, None)
    assert conditions.gaps("choose") == ()


def test_mutants_change_what_the_changed_lines_compute(tmp_path: Path) -> None:
    after = CHOICES.replace(
        "return x", "y = -x * 3 + torch.softmax(x, dim=-1)\n    return y if n > 2 else mask"
    )
    original, changed, changes = versions(tmp_path, CHOICES, after)
    mutants = list(mutants_of(changes[0], changed, original))
    Mutants(changed, original, (), frozenset())  # what reports that a mutant ran
    x = torch.tensor([0.5, -2.0])
    expected = changed.choose(x, 3, None)
    for mutant in mutants:
        with mutant_in_place(mutant):
            result = attempt(changed, x)
        assert result is None or not torch.equal(result, expected), mutant.text
        assert torch.equal(changed.choose(x, 3, None), expected)
    assert len(mutants) > 8


def attempt(module: ModuleType, x: torch.Tensor) -> torch.Tensor | None:
    """Return the result of a mutant; None if it raises."""
    try:
        result: torch.Tensor | None = module.choose(x, 3, None)
    except (
        TypeError,
        IndexError,
    ):  # an argument that is required is gone, or a dimension is none of the input's
        return None
    return result


def stop_a_mutant_that_does_not_end(folder: Path) -> bool:
    """Return whether one of the mutants is stopped; run in a process of its own, since other tests
    may load OpenVINO, after which a signal ends the process where the processor has AMX."""
    mutants._LONGEST = 0.2
    after = CHOICES.replace(
        "return x", "while True:\n        n -= 1\n        if n == 0:\n            return x"
    )
    original, changed, changes = versions(folder, CHOICES, after)
    Mutants(changed, original, (), frozenset())
    for mutant in mutants_of(changes[0], changed, original):
        with mutant_in_place(mutant):
            changed.choose(1.0, 3, None)
        if mutant.killed:
            return True
    return False


def test_a_mutant_that_does_not_end_is_stopped(tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(stop_a_mutant_that_does_not_end, tmp_path).result()


def test_reads_of_the_process_are_named_where_they_are_new(tmp_path: Path) -> None:
    before = "import time\n\n\ndef f(x):\n    time.sleep(0)\n    return x\n"
    after = before.replace(
        "return x", "time.sleep(0)\n    return x if id(x) % 2 else -x * time.time()"
    )
    original, changed, changes = versions(tmp_path, before, after)
    assert new_process_reads(changes[0], changed, original) == (
        "line 7 reads `id`, which no input controls",
        "line 7 reads `time.time`, which no input controls",
    )


STRIDED = torch.zeros(4, dtype=torch.bfloat16)[::2][:1]  # one element with a stride of 2


def outcome(**outputs: object) -> Outcome:
    """Return an outcome with outputs."""
    return Outcome(outputs)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]), "y differs by up to 0.5"),
        (torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.float16), "y has dtype"),
        (torch.ones(2, 1), torch.ones(2), "y has shape"),
        (1, 1.0, "y is 1.0 where the original has 1"),
        (torch.float32, torch.float64, "y is 'torch.float64 (dtype)'"),
        (torch.tensor([True]), torch.tensor([False]), "y differs"),
        (torch.ones(2).to_sparse(), torch.ones(2), "another structure"),
        (torch.empty(0, 3), torch.empty(3, 0), "y has shape"),
        (STRIDED, STRIDED + 1, "y differs by up to 1"),
    ],
)
def test_the_judge_sees_every_difference(before: object, after: object, words: str) -> None:
    judge = Judge()
    assert judge.isolated
    difference = judge(outcome(y=before), outcome(y=after), Outcome, Largest(), Rigour(strict=True))
    assert difference is not None
    assert words in difference.sentence
    for value in (before, after):
        assert (
            judge(outcome(y=value), outcome(y=value), Outcome, Largest(), Rigour(strict=True))
            is None
        )


def test_the_judge_asks_for_the_exact_result_and_reports_the_largest_difference() -> None:
    asked = []

    def truth() -> Outcome:
        asked.append("truth")
        return outcome(y=torch.tensor([1.0, 1.0], dtype=torch.float64))

    largest = Largest()
    before, after = outcome(y=torch.tensor([1.0, 1.1])), outcome(y=torch.tensor([1.1, 1.0]))
    assert Judge()(before, after, truth, largest, Rigour(strict=True)) is None
    assert asked == ["truth"]
    assert largest.absolute["float32"] == pytest.approx(0.1)


def test_the_judge_reads_bytes_whatever_a_file_makes_of_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judge = Judge()
    for name in ("equal", "isclose", "allclose"):
        monkeypatch.setattr(torch, name, lambda *_, **__: True)
    for name in ("numpy", "sub", "__sub__", "detach"):
        monkeypatch.setattr(torch.Tensor, name, lambda value, *_, **__: value * 0)
    difference = judge(
        outcome(y=torch.zeros(2)), outcome(y=torch.ones(2)), Outcome, Largest(), Rigour(strict=True)
    )
    monkeypatch.undo()
    assert difference is not None


def test_errors_keep_their_words() -> None:
    failed = Outcome(error=TypeError("no such  argument of <F at 0x7f982d067610>, 0x10"))
    difference = Judge()(outcome(), failed, Outcome, Largest(), Rigour(strict=True))
    assert difference is not None
    sentence = "the changed version raises TypeError: no such argument of <F at 0x…>, 0x10"
    assert difference.sentence == sentence


def test_the_text_of_a_mutant_names_its_line(tmp_path: Path) -> None:
    after = CHOICES.replace("return x", "return x + 1")
    original, changed, changes = versions(tmp_path, CHOICES, after)
    texts = [mutant.text for mutant in mutants_of(changes[0], changed, original)]
    assert texts == ["line 5, `x + 1`: another operator", "line 5, `1`: a larger number"]


def test_only_numbers_that_one_version_has_are_new(tmp_path: Path) -> None:
    before = CHOICES.replace("return x", "return x * 2.5 + True")
    after = CHOICES.replace("return x", "return 0.25 + (x * 2.5 + True)")
    original, changed, changes = versions(tmp_path, before, after)
    mutants = mutants_of(changes[0], changed, original)
    texts = {mutant.text for mutant in mutants if mutant.is_of_new_number}
    assert texts == {"line 5, `0.25`: a larger number", "line 5, `0.25`: a smaller number"}
