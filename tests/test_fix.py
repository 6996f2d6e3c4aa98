"""Test which patches of a file are written: another rule is tried where a rewrite is not proved."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from regraft.cli.fix import chosen_policy
from regraft.dsl import RuleSyntax, parse_rule
from regraft.fix import fix_with_home, proved_fix
from regraft.rules import BUILT_IN, Rule, load_rule
from regraft.scanning import CompiledRule, FileReport, check_source, compile_rules
from regraft.source.text import SourceFile, parse
from regraft.verification import Status, Verdict

BOTH = """

class Both(nn.Module):
    def forward(self, x):
        y = F.softmax(x, dim=-1)
        return y + x * torch.sigmoid(x)
"""
CODE = """import math
import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def forward(self, q, k, v):
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = F.softmax(att, dim=-1)
        return att @ v


class Other(nn.Module):
    def forward(self, x):
        return F.softmax(x, dim=-1)
"""


RULE = """rule again
  summary "Softmax over the last dimension, once more"
  safety  exact
  needs   torch >= 2.8
forward
  torch.nn.functional.softmax($x, dim=-1, dtype=$dtype) -> $y
  => torch.nn.functional.log_softmax($x, dim=-1, dtype=$dtype) -> $y
"""


@pytest.fixture(scope="module")
def rules() -> list[CompiledRule]:
    """Return two rules for the same places, of which the built-in one comes first."""
    built_in, syntax = load_rule(BUILT_IN / "adopter" / "softmax.rule"), parse_rule(RULE)
    assert isinstance(built_in, Rule) and isinstance(syntax, RuleSyntax)
    own = Rule("own/again", "own", syntax, Path("own/again.rule"), "")
    result, problems = compile_rules([built_in, own])
    assert not problems and len(result) == 2
    return list(result)


def report_of(code: str, rules: list[CompiledRule]) -> FileReport:
    """Return the findings of the rules in a text."""
    source = parse(str(Path("model.py")), code.encode())
    assert isinstance(source, SourceFile)
    return check_source(source, rules)


def verdict(name: str, status: Status, replays: int = 3, lines: tuple[int, ...] = (1,)) -> Verdict:
    """Return a verdict on a definition of line 1, which was compared in some calls that ran
    `lines`."""
    evidence = {
        "replays": replays,
        "lines executed": lines,
        "lines not executed": () if lines else (1,),
    }
    return Verdict("model.py", name, (1,), status, "", evidence)


@pytest.mark.parametrize("status", ["refuted", "unproven"])
def test_the_next_rule_for_a_place_is_tried_where_the_first_is_not_proved(
    rules: list[CompiledRule], status: Status
) -> None:
    texts: list[str] = []

    def verify(code: bytes, confirmed: Collection[str]) -> tuple[Verdict, ...]:
        texts.append(code.decode())
        is_wrong = " softmax(att)" in texts[-1]
        return (verdict("Attention", status if is_wrong else "proved"), verdict("Other", "proved"))

    report = report_of(CODE, rules)
    fix = proved_fix(report, rules, verify)
    assert len(texts) == 2 and fix.left_out == ()
    assert [finding.rule.id for finding in fix.applied] == ["own/again", "adopter/softmax"]
    assert fix.rejected == {("Attention", "adopter/softmax")}
    vendored = fix_with_home(fix, report, rules, "regraft_ops").decode()
    assert vendored.replace("regraft_ops", "regraft.ops") == fix.data.decode()


def attention_in(code: str) -> str:
    """Return the text of the class of attention in a file."""
    return code[code.index("class Attention") : code.index("class Other")]


@pytest.mark.parametrize(
    ("replays", "lines", "runs"), [(3, (1,), 3), (0, (), 2), (3, (), 2)], ids=str
)
def test_a_definition_stays_where_no_rule_is_proved_or_nothing_ran(
    rules: list[CompiledRule], replays: int, lines: tuple[int, ...], runs: int
) -> None:
    texts: list[str] = []

    def verify(code: bytes, confirmed: Collection[str]) -> tuple[Verdict, ...]:
        texts.append(code.decode())
        is_changed = attention_in(texts[-1]) != attention_in(CODE)
        changed = (verdict("Attention", "unproven", replays, lines),) if is_changed else ()
        return (*changed, verdict("Other", "proved"))

    fix = proved_fix(report_of(CODE, rules), rules, verify)
    assert [left.definition for left in fix.left_out] == ["Attention"]
    assert len(texts) == runs
    assert attention_in(fix.data.decode()) == attention_in(CODE)
    assert "F.softmax(x" not in fix.data.decode()


def test_the_rules_of_a_definition_that_are_proved_without_another_are_kept(
    rules: list[CompiledRule],
) -> None:
    texts: list[str] = []
    silu = load_rule(BUILT_IN / "torch" / "silu.rule")
    assert isinstance(silu, Rule)
    all_rules = [*rules, *compile_rules([silu])[0]]

    def both_in(code: str) -> str:
        return code[code.index("class Both") :]

    def verify(code: bytes, confirmed: Collection[str]) -> tuple[Verdict, ...]:
        texts.append(both_in(code.decode()))
        return (verdict("Both", "proved" if "F.softmax(x" in texts[-1] else "refuted"),)

    fix = proved_fix(report_of(CODE + BOTH, all_rules), all_rules, verify)
    both = both_in(fix.data.decode())
    assert "F.softmax(x, dim=-1)" in both and "torch.sigmoid" not in both, texts
    assert fix.left_out == ()


def test_definitions_that_were_proved_beside_others_are_confirmed_and_keep_their_evidence(
    rules: list[CompiledRule],
) -> None:
    runs: list[tuple[bool, Collection[str]]] = []

    def verify(code: bytes, confirmed: Collection[str]) -> tuple[Verdict, ...]:
        is_changed = attention_in(code.decode()) != attention_in(CODE)
        runs.append((is_changed, confirmed))
        changed = (verdict("Attention", "unproven", 0, ()),) if is_changed else ()
        return (*changed, verdict("Other", "proved", replays=100 if is_changed else 1))

    tested_rules = rules[:1]
    fix = proved_fix(report_of(CODE, tested_rules), tested_rules, verify)
    assert runs == [(True, frozenset()), (False, {"Other"})]
    assert [(entry.definition, entry.evidence["replays"]) for entry in fix.verdicts] == [
        ("Other", 100)
    ]


def test_what_untested_rules_rewrite_is_proved_anew_without_the_others(
    rules: list[CompiledRule],
) -> None:
    runs: list[Collection[str]] = []

    def verify(code: bytes, confirmed: Collection[str]) -> tuple[Verdict, ...]:
        is_changed = attention_in(code.decode()) != attention_in(CODE)
        runs.append(confirmed)
        changed = (verdict("Attention", "unproven", 0, ()),) if is_changed else ()
        return (*changed, verdict("Other", "proved", replays=100 if is_changed else 50))

    fix = proved_fix(report_of(CODE, rules), rules, verify)
    assert runs == [frozenset(), frozenset()]
    assert [entry.evidence["replays"] for entry in fix.verdicts] == [50]


def test_a_definition_that_differs_without_the_others_is_left_out(
    rules: list[CompiledRule],
) -> None:
    def verify(code: bytes, confirmed: Collection[str]) -> tuple[Verdict, ...]:
        is_changed = attention_in(code.decode()) != attention_in(CODE)
        changed = (verdict("Attention", "unproven", 0, ()),) if is_changed else ()
        return (*changed, verdict("Other", "proved" if is_changed else "refuted"))

    fix = proved_fix(report_of(CODE, rules), rules, verify)
    assert {left.definition for left in fix.left_out} == {"Attention", "Other"}
    assert fix.data.decode() == CODE


def test_without_torch_nothing_is_written_unless_proof_is_waived(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SystemExit) as stopped:
        chosen_policy(True, None, False, False, sys.executable, None)
    assert stopped.value.code == 2
    assert "--no-verify" in capsys.readouterr().err
    assert not chosen_policy(True, False, False, False, sys.executable, None).prove
    assert not chosen_policy(False, None, False, False, sys.executable, None).prove
    assert chosen_policy(True, None, False, False, "/usr/bin/python3", None).prove
