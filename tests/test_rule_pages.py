"""Test every rule by its page, and the invariants of every rewrite."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from regraft.dsl import parse_rule, print_rule
from regraft.rules import Example, Rule, load_rules, page_examples
from regraft.rules.package_requirements import missing_requirements
from regraft.scanning import FileReport, check_source, compile_rules, rewrite_file
from regraft.source import text
from regraft.source.text import SourceFile, parse

RULES, PROBLEMS = load_rules(["*/*"])
REWRITES = [
    (rule, example)
    for rule in RULES
    for example in page_examples(rule.page)
    if example.kind == "rewrite"
]
UNCHANGED = [
    (rule, example)
    for rule in RULES
    for example in page_examples(rule.page)
    if example.kind == "unchanged"
]


def label(value: object) -> str:
    """Return the id of a rule or an example."""
    return (
        value.id
        if isinstance(value, Rule)
        else f"line {value.line}"
        if isinstance(value, Example)
        else str(value)
    )


def run(rule: Rule, code: str, *, explain: bool = True) -> tuple[FileReport, str]:
    """Return the report on a code and the rewritten text; without `explain`, functions that lack
    the words of the rule are left out."""
    compiled, problems = compile_rules([rule])
    assert not problems
    source = parse("model.py", code.encode())
    assert isinstance(source, SourceFile)
    report = check_source(source, compiled, explain=explain)
    return report, rewrite_file(report, compiled)[0].decode()


def test_all_rules_load() -> None:
    assert PROBLEMS == ()
    assert {rule.id for rule in RULES} >= {
        "adopter/softmax",
        "adopter/dropout-layernorm",
        "adopter/biased-gelu",
        "torch/rms-norm",
        "xformers/scaled-attention",
    }


@pytest.mark.parametrize("rule", RULES, ids=label)
def test_a_rule_prints_and_parses_to_an_equal_rule(rule: Rule) -> None:
    assert parse_rule(print_rule(rule.syntax)) == rule.syntax


@pytest.mark.parametrize(("rule", "example"), REWRITES, ids=label)
def test_before_becomes_after(rule: Rule, example: Example, tmp_path: Path) -> None:
    if missing := missing_requirements(
        need for need in rule.syntax.needs if need.package == "torch"
    ):
        pytest.skip(f"needs {missing[0]}")
    report, changed = run(rule, example.before)
    assert changed == example.after
    _, filtered = run(rule, example.before, explain=False)
    assert filtered == changed, "the filter by words leaves a function out"
    ast.parse(changed)
    second_report, unchanged = run(rule, changed)
    assert unchanged == changed, "a second run changes something"
    path = tmp_path / "model.py"
    path.write_text(example.before)
    (tmp_path / "p.diff").write_text(
        text.diff("model.py", example.before.encode(), changed.encode())
    )
    subprocess.run(["git", "apply", "p.diff"], cwd=tmp_path, check=True)
    assert path.read_text() == changed
    assert report.findings
    assert all(finding.patch is None for finding in second_report.findings)


@pytest.mark.parametrize(("rule", "example"), UNCHANGED, ids=label)
def test_unchanged_for_the_reason(rule: Rule, example: Example) -> None:
    report, changed = run(rule, example.before)
    assert changed == example.before
    reasons = [miss.reason for miss in report.misses]
    reasons += [finding.reason for finding in report.findings]
    reasons = reasons or ["nothing like it"]
    assert any(example.reason in reason for reason in reasons), reasons
    assert example.reason
