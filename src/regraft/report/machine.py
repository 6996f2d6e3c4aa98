"""The JSON report of `regraft check`; its shape is a contract: keys are added, never changed or removed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from regraft.rules.requirements import missing, requirement
from regraft.scanning import FileReport, Finding, Miss
from regraft.source.text import SourceError


@dataclass(slots=True)
class Collector:
    """Gathers the report file by file, so that a file's analysis can be forgotten when its findings are known.

    `missing` counts findings by the package that they wait for. With `explain` it also lists near misses and places
    that were not followed.
    """

    explain: bool = False
    findings: list[dict[str, Any]] = field(default_factory=list)
    misses: list[dict[str, Any]] = field(default_factory=list)
    opaque: list[dict[str, Any]] = field(default_factory=list)
    errors: list[SourceError] = field(default_factory=list)
    missing: Counter[str] = field(default_factory=Counter)
    files: int = 0
    classes: int = 0
    nodes: int = 0

    def add(self, report: FileReport) -> None:
        self.files += 1
        self.classes += report.classes
        self.nodes += report.nodes
        self.errors += report.errors
        self.findings += [finding(one) for one in report.findings]
        self.missing.update(one for found in report.findings for one in missing(found.rule.syntax.needs))
        if self.explain:
            self.misses += [_miss(one) for one in report.misses]
            self.opaque += [
                {"file": report.file, "line": one.line, "column": one.column, "reason": one.reason}
                for one in report.opaque
            ]

    def data(self, seconds: float) -> dict[str, Any]:
        """The whole report."""
        stats = {"files": self.files, "classes": self.classes, "nodes": self.nodes, "seconds": round(seconds, 3)}
        data: dict[str, Any] = {"version": 1, "findings": self.findings, "errors": [error(one) for one in self.errors]}
        data["stats"] = stats
        data["missing"] = dict(sorted(self.missing.items()))
        if self.explain:
            data["near_misses"] = self.misses
            data["not_followed"] = self.opaque
        return data


def finding(one: Finding) -> dict[str, Any]:
    return {
        "rule": one.rule.id,
        "file": one.file,
        "class": one.cls,
        "function": one.function,
        "start": {"line": one.start[0], "column": one.start[1]},
        "end": {"line": one.end[0], "column": one.end[1]},
        "lines": list(one.lines),
        "guard": one.guard,
        "mode": one.mode,
        "safety": one.rule.syntax.safety,
        "status": "fixable" if one.fixable else "withheld",
        "reason": one.reason,
        "kernel": one.kernel,
        "needs": [requirement(need) for need in one.rule.syntax.needs],
    }


def error(one: SourceError) -> dict[str, Any]:
    return {"file": one.file, "line": one.line, "column": one.column, "message": one.message}


def _miss(one: Miss) -> dict[str, Any]:
    return {
        "rule": one.rule.id,
        "file": one.file,
        "line": one.line,
        "column": one.column,
        "scope": one.scope,
        "reason": one.reason,
    }
