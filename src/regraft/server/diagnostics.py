"""Diagnostics, hovers and explanations of an analysis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import attrs
from lsprotocol import types

from regraft.report.rule_page import page_of
from regraft.report.text import change_text, help_text, worth_text
from regraft.scanning import FileReport, Finding
from regraft.server.analysis import Analysis
from regraft.server.positions import Positions
from regraft.source.text import SourceError

SOURCE = "regraft"
NOTEBOOK = (
    "Regraft reads no notebooks: convert this one to a .py file (jupyter nbconvert --to script)"
)
_INFORMATION, _WARNING = types.DiagnosticSeverity.Information, types.DiagnosticSeverity.Warning


def diagnostics_of(analysis: Analysis) -> list[types.Diagnostic]:
    """Return the diagnostics of a text: warnings for what could be fixed; information for places
    that are withheld, for useless comments and for a text that cannot be analysed."""
    positions = analysis.positions
    return [
        *(
            _diagnostic(finding, positions.range(start, end))
            for finding, start, end in analysis.places
        ),
        *(_problem(complaint, positions, "ignore") for complaint in analysis.complaints),
        *(
            _problem(error, positions, "not-analysed", "not analysed: ")
            for error in analysis.scan.errors
        ),
    ]


def _diagnostic(finding: Finding, area: types.Range) -> types.Diagnostic:
    """Return the diagnostic of a finding."""
    worth = worth_text(finding.worth) if finding.fixable else ""
    # a number of a line would be wrong as soon as somebody types above it
    text = change_text(finding) if finding.fixable else help_text(finding)
    lines = (finding.rule.syntax.summary, text, worth)
    return types.Diagnostic(
        range=area,
        message="\n".join(filter(None, lines)),
        severity=_WARNING if finding.fixable else _INFORMATION,
        code=finding.rule.id,
        source=SOURCE,
        data={"fingerprint": finding.fingerprint, "fixable": finding.fixable},
    )


def _problem(
    error: SourceError, positions: Positions, code: str, prefix: str = ""
) -> types.Diagnostic:
    """Return the diagnostic of an error or a complaint at its place."""
    return types.Diagnostic(
        range=positions.line_range(error.line, error.column),
        message=prefix + error.message,
        severity=_INFORMATION,
        code=code,
        source=SOURCE,
    )


def project_diagnostic(error: SourceError) -> types.Diagnostic:
    """Return the diagnostic of an error in a configuration file or a rule, whose text is not at
    hand: the rest of its line is marked."""
    line, column = max(error.line - 1, 0), max(error.column - 1, 0)
    area = types.Range(types.Position(line, column), types.Position(line + 1, 0))
    return types.Diagnostic(area, error.message, types.DiagnosticSeverity.Error, source=SOURCE)


def shifted(
    diagnostics: Sequence[types.Diagnostic], before: bytes, after: bytes
) -> list[types.Diagnostic]:
    """Return the diagnostics of a text for a later one: those above the changed lines stay, those
    below move with their lines, and those in between are left out."""
    old, new = before.splitlines(), after.splitlines()
    shorter = min(len(old), len(new))
    above = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    below = next((i for i in range(shorter - above) if old[-1 - i] != new[-1 - i]), shorter - above)
    first_below, distance = len(old) - below, len(new) - len(old)
    return [
        moved(diagnostic, distance) if diagnostic.range.start.line >= first_below else diagnostic
        for diagnostic in diagnostics
        if diagnostic.range.end.line < above or diagnostic.range.start.line >= first_below
    ]


def moved(diagnostic: types.Diagnostic, lines: int) -> types.Diagnostic:
    """Return a diagnostic some lines further down."""
    start, end = (
        types.Position(place.line + lines, place.character)
        for place in (diagnostic.range.start, diagnostic.range.end)
    )
    return attrs.evolve(diagnostic, range=types.Range(start, end))


def hover_of(analysis: Analysis, position: types.Position) -> types.Hover | None:
    """Return what is said about the findings at a position: the change or the obstacle, what the
    rule is worth, and its page; None without a finding."""
    findings = list(analysis.findings_in(types.Range(position, position)))
    if not findings:
        return None
    pages = {finding.rule.id: page_of(finding.rule) for finding in findings}
    text = "\n\n---\n\n".join((*map(_hover_text, findings), *pages.values()))
    content = types.MarkupContent(types.MarkupKind.Markdown, text)
    return types.Hover(content, analysis.range_of(findings[0]))


def _hover_text(finding: Finding) -> str:
    """Return the paragraphs about one place."""
    lines = [f"**{finding.rule.id}** ({finding.rule.syntax.safety})", help_text(finding)]
    if worth := worth_text(finding.worth):
        lines.append(f"Worth: {worth}")
    if finding.fixable and finding.mode == "version":
        lines.append(f"Only where {' and '.join(finding.tests)}; the original stays beside it.")
    return "\n\n".join(lines)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why places of some lines are not rewritten: a sentence for each."""

    title: str
    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        """The explanation as plain text."""
        return "\n".join((self.title, *(f"- {sentence}" for sentence in self.sentences)))


def explanation_of(report: FileReport, first: int, last: int) -> Explanation:
    """Return why the places of some lines (1-based) are not rewritten, from a report that
    explains."""
    sentences = tuple(dict.fromkeys(_sentences(report, first, last)))
    place = f"line {first}" if first == last else f"lines {first} to {last}"
    if not sentences:
        return Explanation(f"No rule comes near to matching in {place}.", ())
    return Explanation(f"{place[0].upper()}{place[1:]}:", sentences)


def _sentences(report: FileReport, first: int, last: int) -> Iterator[str]:
    """Yield the reasons at some lines: of withheld places, near misses and what was not
    followed."""
    for finding in report.findings:
        if finding.start[0] <= last and first <= finding.end[0]:
            yield f"{finding.rule.id}: {help_text(finding)}"
    for miss in report.misses:
        if first <= miss.line <= last:
            yield f"{miss.rule.id}: no match in {miss.scope}: {miss.reason}"
    for opaque in report.opaque:
        if first <= opaque.line <= last:
            yield f"not followed: {opaque.reason}"
