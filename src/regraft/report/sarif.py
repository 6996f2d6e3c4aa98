"""The report of `regraft check` as a log of SARIF 2.1.0 (OASIS), with fixes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from regraft import __version__
from regraft.report.annotations import path_in_project

if TYPE_CHECKING:
    from regraft.report.json_report import Collector
    from regraft.source.text import SourceError

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


def sarif_log(total: Collector) -> dict[str, Any]:
    """Return the log of a check: one run, with a result for each finding."""
    rules = {finding["rule"]: _rule(finding) for finding in total.findings}
    indices = {name: number for number, name in enumerate(rules)}
    run = {
        "tool": {"driver": {"name": "regraft", "version": __version__, "rules": [*rules.values()]}},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(total)],
        "results": [_result(finding, indices[finding["rule"]]) for finding in total.findings],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(finding: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": finding["rule"],
        "shortDescription": {"text": finding["message"]},
        "help": {"text": f"regraft rule {finding['rule']} prints the page of the rule."},
        "defaultConfiguration": {"level": "warning"},
        "properties": {"safety": finding["safety"], "needs": finding["needs"]},
    }


def _result(finding: Mapping[str, Any], rule_index: int) -> dict[str, Any]:
    result = {
        "ruleId": finding["rule"],
        "ruleIndex": rule_index,
        "level": "warning" if finding["fixable"] else "note",
        "message": {"text": f"{finding['message']}: {finding['help']}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": _artifact(finding["file"]),
                    "region": _region(finding),
                }
            }
        ],
        "partialFingerprints": {"regraftFinding/v1": finding["fingerprint"]},
    }
    if finding["edits"]:
        result["fixes"] = [_fix(finding)]
    return result


def _fix(finding: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fix of a finding: its edits, in one artifact."""
    replacements = [
        {"deletedRegion": _region(edit), "insertedContent": {"text": edit["text"]}}
        for edit in finding["edits"]
    ]
    change = {"artifactLocation": _artifact(finding["file"]), "replacements": replacements}
    return {"description": {"text": finding["help"]}, "artifactChanges": [change]}


def _region(place: Mapping[str, Any]) -> dict[str, int]:
    """Return the region of a finding or an edit; its end is the column after the last one."""
    start, end = place["start"], place["end"]
    return {
        "startLine": start["line"],
        "startColumn": start["column"],
        "endLine": end["line"],
        "endColumn": end["column"],
    }


def _artifact(file: str) -> dict[str, Any]:
    """Return the location of a file, relative to the working directory where it is below."""
    path = path_in_project(file)
    if path.startswith("/") or path[1:2] == ":":
        return {"uri": "file://" + quote(path if path.startswith("/") else f"/{path}")}
    return {"uri": quote(path), "uriBaseId": "%SRCROOT%"}


def _invocation(total: Collector) -> dict[str, Any]:
    notifications = [
        *(_notification(warning, "warning") for warning in total.warnings),
        *(_notification(error, "error") for error in total.errors),
    ]
    return {
        "executionSuccessful": not total.errors,
        "toolExecutionNotifications": notifications,
    }


def _notification(problem: SourceError, level: str) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": _artifact(problem.file)}
    if problem.line:
        column = {"startColumn": problem.column} if problem.column else {}
        location["region"] = {"startLine": problem.line, **column}
    return {
        "level": level,
        "message": {"text": problem.message},
        "locations": [{"physicalLocation": location}],
    }
