"""The JSON report of `regraft check`; its shape is a contract: keys are added, never changed or removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regraft.scan import FileReport, Finding, Miss
from regraft.source import SourceError


def report(
    reports: Sequence[FileReport], errors: Sequence[SourceError], seconds: float, explain: bool = False
) -> dict[str, Any]:
    """The whole report; with `explain` it also lists near misses and places that were not followed."""
    data: dict[str, Any] = {
        "version": 1,
        "findings": [finding(one) for file in reports for one in file.findings],
        "errors": [error(one) for one in errors],
        "stats": {
            "files": len(reports),
            "classes": sum(one.classes for one in reports),
            "nodes": sum(one.nodes for one in reports),
            "seconds": round(seconds, 3),
        },
    }
    if explain:
        data["near_misses"] = [_miss(one) for file in reports for one in file.misses]
        data["not_followed"] = [
            {"file": file.file, "line": one.line, "column": one.column, "reason": one.reason}
            for file in reports
            for one in file.opaque
        ]
    return data


def finding(one: Finding) -> dict[str, Any]:
    structure = one.match.structure
    return {
        "rule": one.rule.id,
        "file": one.file,
        "class": structure.name if structure.cls is not None else None,
        "function": one.match.body.name,
        "start": {"line": one.start[0], "column": one.start[1]},
        "end": {"line": one.end[0], "column": one.end[1]},
        "lines": list(one.lines),
        "guard": one.guard,
        "mode": one.mode,
        "safety": one.rule.syntax.safety,
        "status": "fixable" if one.patch is not None else "withheld",
        "reason": one.reason,
        "kernel": one.kernel,
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
