"""The application of a file's findings, in rounds until none is left."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Sequence

from regraft.rewriting.match_rewriting import Patch
from regraft.scanning.check import check_source
from regraft.scanning.compiled_rules import CompiledRule
from regraft.scanning.findings import FileReport, Finding
from regraft.source import text
from regraft.source.imports import Imports
from regraft.source.text import Edit, SourceError, SourceFile
from regraft.structure import Module

MORE_ROUNDS = 10  # for what rewriting brings up, besides a round for each of the first findings
MOST_ROUNDS = 16  # as long as each leaves fewer findings; files of libraries take 7 at most
MOST_FINDINGS = 5500  # of all rounds together, under the same condition
WHOLE_ROUNDS = 2  # after which the function that a round has changed is scanned first


class RuleDefect(Exception):
    """An error of rules that rewrote a file into something that cannot stand.

    `error` names them. Nothing is written.
    """

    def __init__(self, findings: Sequence[Finding], message: str) -> None:
        rules = ", ".join(dict.fromkeys(finding.rule.id for finding in findings))
        self.error = SourceError(
            findings[0].file, findings[0].start[0], findings[0].start[1], f"{rules}: {message}"
        )
        super().__init__(self.error.message)


def choose(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return fixable findings whose statements do not overlap, or whose edits are equal.

    Of overlapping ones the first in the file wins, then the first rule by name. But a finding that
    would keep a second version of the code under a condition waits where another finding replaces
    its first line in place.
    """
    chosen: list[Finding] = []
    end = -1
    edits: tuple[Edit, ...] = ()
    for finding, patch in sorted(
        _ready_patches(findings), key=lambda pair: (pair[1].extent, pair[0].rule.id)
    ):
        if patch.extent.start >= end or patch.edits == edits:
            chosen.append(finding)
            end, edits = patch.extent.end, patch.edits
    return tuple(chosen)


def _ready_patches(findings: Sequence[Finding]) -> list[tuple[Finding, Patch]]:
    """Return the findings with a patch that need not wait for others, each with its patch."""
    pairs = [(finding, finding.patch) for finding in findings if finding.patch is not None]
    replaced_lines = {finding.lines[0] for finding, patch in pairs if patch.mode == "substitute"}
    return [
        (finding, patch)
        for finding, patch in pairs
        if not (patch.mode == "version" and finding.lines[0] in replaced_lines)
    ]


def apply_patches(source: SourceFile, patches: Sequence[Patch], home: str = "regraft.ops") -> bytes:
    """Return the bytes of the file with the patches and the imports that they need."""
    module = Module(source)
    imports = Imports(source, module.names, home)
    used: set[str] = set()
    for patch in patches:
        used |= patch.uses
        for qualified in patch.uses:
            imports.spell(qualified)
    edits = dict.fromkeys(edit for patch in patches for edit in patch.edits)
    return text.apply(source, [*edits, *imports.edits(used)])


def _applicable(report: FileReport, wanted: Callable[[Finding], bool]) -> list[Finding]:
    """Return the findings of a report that are wanted and have a patch."""
    return [finding for finding in report.findings if finding.patch is not None and wanted(finding)]


def _changed_function(before: SourceFile, after: SourceFile) -> tuple[int, int] | None:
    """Return the first and the last line of the outermost function of a later version that holds
    all that differs; None where no function does."""
    old_lines, new_lines = before.text.splitlines(), after.text.splitlines()
    above = _number_equal(old_lines, new_lines)
    below = _number_equal(old_lines[above:][::-1], new_lines[above:][::-1])
    first, last = above + 1, len(new_lines) - below
    for node in ast.walk(after.tree):  # outer functions first
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            start, end = node.lineno, node.end_lineno or node.lineno
            if start <= first and last <= end:
                return start, end
    return None


def _number_equal(first: Sequence[bytes], second: Sequence[bytes]) -> int:
    """Return the number of lines at the beginning of two texts that are equal in both."""
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def rewrite_file(
    report: FileReport,
    rules: Sequence[CompiledRule],
    home: str = "regraft.ops",
    wanted: Callable[[Finding], bool] = lambda _: True,
) -> tuple[bytes, tuple[Finding, ...]]:
    """Return the bytes of a file with its fixable findings applied, and these findings.

    This goes in rounds until no finding is left, or for MOST_ROUNDS, or until MOST_FINDINGS were
    read, where a statement has more findings: the rest are findings of the rewritten file. Findings
    that are not `wanted` stay as they are. Patches that share a statement are applied in different
    rounds, each against the text of the round before. Raise RuleDefect when a rewritten file does
    not parse or the rounds do not end.
    """
    assert report.source is not None
    source = report.source
    applied: list[Finding] = []
    is_partial = False  # whether the report is that of one function
    number_before = number_read = 0
    for round_number in range(len(report.findings) + MORE_ROUNDS):
        applicable = _applicable(report, wanted)
        if is_partial and not applicable:
            report, is_partial = check_source(source, rules, home), False
            applicable = _applicable(report, wanted)
        chosen = choose(applicable)
        number_read += len(report.findings)
        is_long = round_number >= MOST_ROUNDS or number_read > MOST_FINDINGS
        is_enough = is_long and len(applicable) < number_before
        if not chosen or is_enough:
            return source.data, tuple(applied)
        number_before = len(applicable)
        applied += chosen
        rewritten = apply_patches(
            source, [finding.patch for finding in chosen if finding.patch is not None], home
        )
        parsed = text.parse(source.path, rewritten)
        if isinstance(parsed, SourceError):
            raise RuleDefect(
                chosen, f"the rewritten file does not parse: line {parsed.line}: {parsed.message}"
            )
        lines = _changed_function(source, parsed) if round_number >= WHOLE_ROUNDS else None
        source, is_partial = parsed, lines is not None
        report = check_source(source, rules, home, lines=lines)
    raise RuleDefect(
        applied[-1:], "rewriting does not come to an end: the target matches the source again"
    )
