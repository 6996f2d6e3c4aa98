"""The page of a rule as its test: every example of the page goes through the rule."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from regraft.rules import Example, Rule, page_examples
from regraft.scanning.check import check_source
from regraft.scanning.compiled_rules import CompiledRule
from regraft.scanning.findings import FileReport
from regraft.scanning.fixpoint import RuleDefect, rewrite_file
from regraft.source.text import SourceError, SourceFile, parse


@dataclass(frozen=True, slots=True)
class PageFailure:
    """An example that does not hold: the page, the line (1-based) of the example, and what happened
    instead.

    details  a diff between the page and what the rule wrote, or the reasons why the rule left the
    code as it is
    """

    path: str
    line: int
    message: str
    details: tuple[str, ...] = ()


def check_page(compiled: CompiledRule) -> Iterator[PageFailure]:
    """Yield a failure for every example of the rule's page that the rule does not do as the page
    says."""
    for example in page_examples(compiled.rule.page):
        yield from _check_example(example, compiled)


def _check_example(example: Example, compiled: CompiledRule) -> Iterator[PageFailure]:
    page = str(compiled.rule.path.with_suffix(".md"))
    source = parse(page, example.before.encode())
    if isinstance(source, SourceError):
        yield PageFailure(
            page, example.line + source.line, f"the example is not Python: {source.message}"
        )
        return
    report = check_source(source, (compiled,), explain=True)
    try:
        written = rewrite_file(report, (compiled,))[0].decode()
    except RuleDefect as defect:
        yield PageFailure(page, example.line, str(defect))
        return
    if example.kind == "unchanged":
        yield from _check_unchanged(example, written, report, compiled.rule)
    elif written == example.before:
        yield PageFailure(page, example.line, "the rule leaves the code as it is", _reasons(report))
    elif written != example.after:
        diff = _diff(example.after, written)
        yield PageFailure(page, example.line, "the rule writes something else than `after`", diff)
    elif not _is_fixpoint(written, compiled):
        yield PageFailure(page, example.line, "a second run changes the code once more")


def _check_unchanged(
    example: Example, written: str, report: FileReport, rule: Rule
) -> Iterator[PageFailure]:
    page = str(rule.path.with_suffix(".md"))
    reasons = _reasons(report)
    if written != example.before:
        diff = _diff(example.before, written)
        yield PageFailure(
            page, example.line, "the rule changes code that should stay as it is", diff
        )
    elif not any(example.reason in reason for reason in reasons):
        yield PageFailure(
            page, example.line, f'no reason of the rule contains "{example.reason}"', reasons
        )


def _reasons(report: FileReport) -> tuple[str, ...]:
    """Return why the rule did not apply, with the lines of the example."""
    misses = (f"line {miss.line}: {miss.reason}" for miss in report.misses)
    findings = (finding for finding in report.findings if finding.reason)
    withheld = (f"line {finding.start[0]}: withheld: {finding.reason}" for finding in findings)
    return (*misses, *withheld) or ("nothing like it: no node of the pattern was found",)


def _diff(expected: str, written: str) -> tuple[str, ...]:
    lines = difflib.unified_diff(
        expected.splitlines(), written.splitlines(), "page", "rule", lineterm=""
    )
    return tuple(lines)


def _is_fixpoint(written: str, compiled: CompiledRule) -> bool:
    source = parse("example.py", written.encode())
    if not isinstance(source, SourceFile):
        return False
    return rewrite_file(check_source(source, (compiled,)), (compiled,))[0] == source.data
