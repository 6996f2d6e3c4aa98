"""The output formats of `regraft check`: a class for each, found by its name in `FORMATS`.

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
    from regraft.report.machine import Collector
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
    """

    is_document: ClassVar[bool]

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

    def finish(self, total: Collector, seconds: float, remarks: list[str]) -> None:
        from regraft.report import text

        for line in (text.summary(total), *remarks):
            self.write_total(line)
        for warning in total.warnings:
            self.streams.remark(text.warning(warning))
        for error in total.errors:
            self.streams.remark(text.error(error))


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


class Json:
    """One JSON document, whose shape `regraft.report.machine` states."""

    is_document: ClassVar[bool] = True

    def __init__(self, streams: Streams) -> None:
        self.streams = streams

    def add(self, report: FileReport) -> None:
        """Nothing: the totals hold every file."""

    def finish(self, total: Collector, seconds: float, remarks: list[str]) -> None:
        self.streams.write(json.dumps(total.data(seconds), indent=1))


class ErrorsOnly:
    """Errors alone: with `--diff`, where the output is a diff."""

    is_document: ClassVar[bool] = False

    def __init__(self, streams: Streams) -> None:
        self.streams = streams

    def add(self, report: FileReport) -> None:
        """Nothing: the diff of the file says it all."""

    def finish(self, total: Collector, seconds: float, remarks: list[str]) -> None:
        from regraft.report import text

        for warning in total.warnings:
            self.streams.remark(text.warning(warning))
        for error in total.errors:
            self.streams.remark(text.error(error))


FORMATS: Mapping[str, type[Output]] = MappingProxyType(
    {"full": Full, "concise": Concise, "json": Json}
)
