"""Reports of `regraft check` that forges show beside the code: GitHub Actions, and GitLab's Code
Quality."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regraft.report.json_report import Collector
    from regraft.source.text import SourceError


def path_in_project(file: str) -> str:
    """Return the path of a file relative to the working directory, with slashes; its absolute path
    where it is outside."""
    try:
        relative = os.path.relpath(file)
    except ValueError:  # on another drive
        relative = os.pardir
    is_outside = relative.split(os.sep, 1)[0] == os.pardir
    return (os.path.abspath(file) if is_outside else relative).replace(os.sep, "/")


def github_lines(total: Collector) -> Iterator[str]:
    """Yield a workflow command for each finding, warning and error."""
    for finding in total.findings:
        place = {
            "file": path_in_project(finding["file"]),
            "line": finding["start"]["line"],
            "endLine": finding["end"]["line"],
            "title": f"Regraft ({finding['rule']})",
        }
        if finding["start"]["line"] == finding["end"]["line"]:  # GitHub knows no others
            place["col"] = finding["start"]["column"]
            place["endColumn"] = finding["end"]["column"]
        level = "warning" if finding["fixable"] else "notice"
        yield _command(level, place, f"{finding['message']}: {finding['help']}")
    for level, problems in (("warning", total.warnings), ("error", total.errors)):
        for problem in problems:
            yield _command(level, _place_of(problem), problem.message)


def _place_of(problem: SourceError) -> dict[str, Any]:
    place = {"file": path_in_project(problem.file), "line": problem.line, "col": problem.column}
    return {name: value for name, value in place.items() if value} | {"title": "Regraft"}


def _command(level: str, place: dict[str, Any], message: str) -> str:
    """Return a workflow command, with what would end its parts escaped."""
    properties = ",".join(
        f"{name}={_escaped(str(value)).replace(':', '%3A').replace(',', '%2C')}"
        for name, value in place.items()
    )
    return f"::{level} {properties}::{_escaped(message)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def gitlab_issues(total: Collector) -> list[dict[str, Any]]:
    """Return the issues of a Code Quality report; their fingerprints are unique."""
    issues = []
    repeats: Counter[str] = Counter()
    for finding in total.findings:
        path = path_in_project(finding["file"])
        key = f"{path}\0{finding['fingerprint']}"
        repeats[key] += 1
        fingerprint = hashlib.blake2b(f"{key}\0{repeats[key]}".encode(), digest_size=16)
        lines = {"begin": finding["start"]["line"], "end": finding["end"]["line"]}
        issues.append(
            {
                "description": f"{finding['message']}: {finding['help']}",
                "check_name": finding["rule"],
                "fingerprint": fingerprint.hexdigest(),
                "severity": "minor" if finding["fixable"] else "info",
                "location": {"path": path, "lines": lines},
            }
        )
    return issues
