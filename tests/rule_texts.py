"""Rules that tests write as texts, and what they rewrite."""

from __future__ import annotations

from pathlib import Path

from regraft.dsl import parse_rule, print_rule
from regraft.dsl.syntax import RuleSyntax
from regraft.rules import Rule
from regraft.scanning import FileReport, check_source, compile_rules, rewrite_file
from regraft.source.text import SourceFile, parse


def rule_of(text: str) -> Rule:
    """Return the rule of a text, after checking that it prints to an equal rule."""
    syntax = parse_rule(text)
    assert isinstance(syntax, RuleSyntax), syntax
    assert parse_rule(print_rule(syntax)) == syntax
    return Rule(f"test/{syntax.name}", "test", syntax, Path(f"{syntax.name}.rule"), "")


def rewrite_code(rule: Rule, code: str) -> tuple[FileReport, str]:
    """Return the report and the rewritten text of a code by a rule."""
    compiled, problems = compile_rules([rule])
    assert not problems
    source = parse("model.py", code.encode())
    assert isinstance(source, SourceFile)
    report = check_source(source, compiled)
    return report, rewrite_file(report, compiled)[0].decode()
