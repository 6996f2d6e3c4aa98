"""The analysis of a text in an editor, saved or not, as if it were the file that it stands for."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from lsprotocol import types

from regraft.scanning import CompiledRule, FileReport, Finding, check_text, rewrite_file
from regraft.scanning.edits_by_finding import Key, edits_of, key_of
from regraft.scanning.ignore_comments import add_comments
from regraft.server.positions import Positions
from regraft.server.project import Project
from regraft.source.text import Edit, SourceError, SourceFile


@dataclass(frozen=True)
class Analysis:
    """The findings of a text.

    text        the text as the editor has it
    project     what holds for its file
    rules       the rules that were applied
    scan        the report with all findings of these rules, with their patches
    report      the report with what is shown
    complaints  what is wrong with comments that ignore findings
    positions   its places in the protocol's units
    """

    text: str
    project: Project
    rules: tuple[CompiledRule, ...]
    scan: FileReport
    report: FileReport
    complaints: tuple[SourceError, ...]
    positions: Positions

    @property
    def source(self) -> SourceFile | None:
        """The parsed text; None where it cannot be parsed."""
        return self.scan.source

    @property
    def is_broken(self) -> bool:
        """Whether the text could not be analysed, because of a syntax error, for example."""
        return bool(self.scan.errors)

    @cached_property
    def places(self) -> tuple[tuple[Finding, int, int], ...]:
        """The findings that are shown, each with the byte offsets of its start and end."""
        source = self.source
        if source is None:
            return ()
        return tuple(
            (finding, _offset(source, finding.start), _offset(source, finding.end))
            for finding in self.report.findings
        )

    def findings_in(self, area: types.Range) -> Iterator[Finding]:
        """Yield the findings that touch a range."""
        start, end = self.positions.offset(area.start), self.positions.offset(area.end)
        for finding, first, last in self.places:
            if first <= end and start <= last:
                yield finding

    def range_of(self, finding: Finding) -> types.Range:
        """Return the range of a finding that is shown."""
        start, end = next(place[1:] for place in self.places if place[0] is finding)
        return self.positions.range(start, end)

    @cached_property
    def _edits(self) -> Mapping[Key, tuple[Edit, ...]]:
        return edits_of(self.scan)

    def fix(self, finding: Finding) -> list[types.TextEdit]:
        """Return the edits of a finding that is fixable, with the imports that it needs."""
        return self.positions.text_edits(self._edits.get(key_of(finding), ()))

    def fix_all(self) -> list[types.TextEdit]:
        """Return the edits that apply all fixable findings, as `regraft check --fix --no-verify`
        writes them; raise RuleDefect."""
        changed, _ = rewrite_file(self.scan, self.rules, wanted=self._is_wanted)
        return self._edits_to(changed)

    def ignore(self, finding: Finding) -> list[types.TextEdit]:
        """Return the edits that ignore a finding by a comment; none where none fits there."""
        if self.source is None:
            return []
        changed, _ = add_comments(self.source, [finding])
        return self._edits_to(changed)

    def explained(self) -> FileReport:
        """Return the report with near misses and with what was not followed."""
        explained = check_text(self.scan.file, self._file_bytes(), self.rules, explain=True)
        return replace(explained, findings=self.report.findings)

    def _file_bytes(self) -> bytes:
        """Return the bytes of the file with this text."""
        return self.source.data if self.source is not None else encoded(self.text)

    def _is_wanted(self, finding: Finding) -> bool:
        return not self.project.accepts(finding)

    def _edits_to(self, changed: bytes) -> list[types.TextEdit]:
        """Return the edits that make a text, in the encoding of the file, of this one."""
        assert self.source is not None
        encoding = self.source.encoding
        is_utf8 = encoding in ("utf-8", "utf-8-sig")
        return self.positions.edits_to(changed if is_utf8 else changed.decode(encoding).encode())


def analyse(name: str, text: str, project: Project, encoding: str) -> Analysis:
    """Return the analysis of a text that stands for the file of a name.

    encoding  the units in which editor and server count columns
    """
    rules = project.rules_in(Path(name))
    scan = check_text(name, encoded(text), rules)
    return analysis_of_report(text, project, rules, scan, encoding)


def analysis_of_report(
    text: str, project: Project, rules: tuple[CompiledRule, ...], scan: FileReport, encoding: str
) -> Analysis:
    """Return the analysis of a text with the report of its scan."""
    report = project.shown(scan, rules)
    utf8 = scan.source.text if scan.source is not None else text.encode("utf-8", "surrogatepass")
    complaints = project.complaints(report, rules)
    return Analysis(text, project, rules, scan, report, complaints, Positions(utf8, encoding))


def encoded(text: str) -> bytes:
    """Return the bytes of the file with a text: in the encoding that the text names, else UTF-8."""
    utf8 = text.encode("utf-8", "surrogatepass")
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(utf8).readline)[0]
        return utf8 if encoding.startswith("utf-8") else text.encode(encoding)
    except (SyntaxError, UnicodeEncodeError):
        return utf8


def _offset(source: SourceFile, place: tuple[int, int]) -> int:
    """Return the byte offset of a 1-based line and column in characters."""
    line, column = place
    starts = source.line_starts
    end = starts[line] if line < len(starts) else len(source.text)
    before = source.text[starts[line - 1] : end].decode(errors="replace")[: column - 1]
    return starts[line - 1] + len(before.encode())
