"""The output formats of `regraft check`: a class for each, by its name in `FORMATS`.

This module imports nothing of the scan, since the command line lists the formats before anything is
scanned.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from regraft.report.json_report import Collector
    from regraft.scanning import FileReport


@dataclass(frozen=True, slots=True)
class Streams:
    """The places where a format writes: lines of output, remarks beside it, and colour where a
    terminal shows it."""

    write: Callable[[str], None]
    remark: Callable[[str], None]
    paint: Callable[..., str]


class Output(Protocol):
    """One output format.

    is_document  the output is one document, so that nothing else may be written between its parts:
                 `--fix` then prints no verdicts, and `--diff` is refused
    shows_edits  the output has the edits of findings, which have to be computed
    """

    is_document: ClassVar[bool]
    shows_edits: ClassVar[bool]

    def __init__(self, streams: Streams) -> None: ...

    def add(self, report: FileReport) -> None:
        """Write what is known of one file."""
        ...

    def finish(self, total: Collector, seconds: float, remarks: list[str]) -> None:
        """Write the totals of all files, and `total.errors`, which nothing else reports; `remarks`
        are sentences about the run as a whole."""
        ...


class Full:
    """Every finding with its code, a caret frame and the change or the obstacle to it."""

    is_document: ClassVar[bool] = False
    shows_edits: ClassVar[bool] = False

    def __init__(self, streams: Streams) -> None:
        self.streams = streams
        self.write_total = streams.write

    def add(self, report: FileReport) -> None:
        from regraft.report import text

        for line in (*self.finding_lines(report), *text.explanations(report, self.streams.paint)):
            self.streams.write(line)

    def finding_lines(self, report: FileReport) -> Iterator[str]:
        """Yield the lines for the findings of one file."""
        from regraft.report import text

        for finding in report.findings:
            yield from text.full(finding, self.streams.paint)

    def closing_lines(self, total: Collector) -> Iterator[str]:
        """Yield the lines before the totals: what each rule is worth."""
        from regraft.report import text

        yield from text.worth_lines(total)

    def finish(self, total: Collector, seconds: float, remarks: list[str]) -> None:
        from regraft.report import text

        for line in (*self.closing_lines(total), text.summary(total), *remarks):
            self.write_total(line)
        _remark_problems(total, self.streams)


class Concise(Full):
    """One line for each finding; the totals go beside the output, so that it holds nothing but
    findings."""

    def __init__(self, streams: Streams) -> None:
        super().__init__(streams)
        self.write_total = streams.remark

    def finding_lines(self, report: FileReport) -> Iterator[str]:
        from regraft.report import text

        for finding in report.findings:
            yield text.concise(finding, self.streams.paint)

    def closing_lines(self, total: Collector) -> Iterator[str]:
        """Yield nothing: a finding is a line."""
        yield from ()


class Quiet:
    """Warnings and errors alone: with `--diff`, where the output is a diff, and with `--quiet`."""

    is_document: ClassVar[bool] = False
    shows_edits: ClassVar[bool] = False

    def __init__(self, streams: Streams) -> None:
        self.streams = streams

    def add(self, report: FileReport) -> None:
        """Nothing: the exit status or the diff says it all."""

    def finish(self, total: Collector, seconds: float, remarks: list[str]) -> None:
        _remark_problems(total, self.streams)


def _remark_problems(total: Collector, streams: Streams) -> None:
    """Write the warnings and errors of a check beside its output."""
    from regraft.report import text

    for warning in total.warnings:
        streams.remark(text.warning(warning))
    for error in total.errors:
        streams.remark(text.error(error))


class Document:
    """A format for machines, written at the end, from the totals."""

    is_document: ClassVar[bool] = True
    shows_edits: ClassVar[bool] = True

    def __init__(self, streams: Streams) -> None:
        self.streams = streams

    def add(self, report: FileReport) -> None:
        """Nothing: the totals hold every file."""

    def finish(self, total: Collector, seconds: float, remarks: list[str]) -> None:
        for line in self.lines(total, seconds):
            self.streams.write(line)

    def lines(self, total: Collector, seconds: float) -> Iterator[str]:
        """Yield the lines of the document."""
        raise NotImplementedError


class Json(Document):
    """One JSON document, whose shape `schemas/check.schema.json` states."""

    def lines(self, total: Collector, seconds: float) -> Iterator[str]:
        yield json.dumps(total.data(seconds), indent=1)


class JsonLines(Document):
    """A JSON object on each line: findings, warnings, errors, the summary; `type` says which."""

    def lines(self, total: Collector, seconds: float) -> Iterator[str]:
        data = total.data(seconds)
        for kind in ("finding", "warning", "error"):
            for entry in data[f"{kind}s"]:
                yield json.dumps({"type": kind, **entry})
        yield json.dumps({"type": "summary", "version": data["version"], **data["summary"]})


class GitHub(Document):
    """Annotations of GitHub Actions."""

    shows_edits: ClassVar[bool] = False

    def lines(self, total: Collector, seconds: float) -> Iterator[str]:
        from regraft.report.annotations import github_lines

        yield from github_lines(total)


class GitLab(Document):
    """A Code Quality report of GitLab, which has no place for errors: they go beside it."""

    shows_edits: ClassVar[bool] = False

    def lines(self, total: Collector, seconds: float) -> Iterator[str]:
        from regraft.report.annotations import gitlab_issues

        yield json.dumps(gitlab_issues(total), indent=1)
        _remark_problems(total, self.streams)


class Sarif(Document):
    """SARIF 2.1.0 with fixes."""

    def lines(self, total: Collector, seconds: float) -> Iterator[str]:
        from regraft.report.sarif import sarif_log

        yield json.dumps(sarif_log(total), indent=1)


class Junit(Document):
    """JUnit's XML: a failed test for each finding that could be fixed."""

    shows_edits: ClassVar[bool] = False

    def lines(self, total: Collector, seconds: float) -> Iterator[str]:
        from regraft.report.junit import junit_xml

        yield junit_xml(total, seconds)


class Html(Document):
    """One HTML page, which needs no other file and no network."""

    def lines(self, total: Collector, seconds: float) -> Iterator[str]:
        from regraft.report.html.check_page import check_page

        yield check_page(total, seconds)


FORMATS: Mapping[str, type[Output]] = MappingProxyType(
    {
        "full": Full,
        "concise": Concise,
        "json": Json,
        "json-lines": JsonLines,
        "github": GitHub,
        "gitlab": GitLab,
        "sarif": Sarif,
        "junit": Junit,
        "html": Html,
    }
)
