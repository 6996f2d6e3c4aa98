"""Baselines: findings that a project has accepted, so that only new ones fail.

A finding is recognised by its fingerprint (rule, scope and code, without places), so that code may
move within its file, and with its file. The file is JSON: `format`, and `findings`, each with
`file` (relative to the baseline's folder), `rule`, `scope`, `fingerprint` and `count`.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from regraft.scanning.findings import FileReport, Finding
from regraft.source.text import write_atomically

NAME = "regraft.baseline.json"
FORMAT = 1


class BaselineError(ValueError):
    """The reason why a baseline cannot be used, with its path."""


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """Accepted findings with one fingerprint in one file."""

    file: str
    rule: str
    scope: str
    fingerprint: str
    count: int


class Baseline:
    """The accepted findings of a project; each is used up by a finding that it covers."""

    def __init__(self, path: Path, entries: Iterable[Entry] = ()) -> None:
        self.path = path
        self.entries = tuple(entries)
        self._folder = os.path.abspath(path.parent)
        self._left: Counter[tuple[str, str]] = Counter()
        for entry in self.entries:
            is_there = os.path.exists(os.path.join(self._folder, entry.file))
            # what a file that is gone had may be in any file now
            self._left[entry.file if is_there else "", entry.fingerprint] += entry.count
        self._accepted = frozenset(self._left)

    def without_accepted(self, report: FileReport) -> tuple[FileReport, int]:
        """Return a report without the findings that are accepted, and their number.

        Places that are withheld never fail; they stay.
        """
        findings = tuple(
            finding
            for finding in report.findings
            if not finding.fixable or not self._use_up(report.file, finding)
        )
        return replace(report, findings=findings), len(report.findings) - len(findings)

    def accepts(self, file: str, finding: Finding) -> bool:
        """Return whether findings with this fingerprint are accepted in a file."""
        return any((name, finding.fingerprint) in self._accepted for name in self._names(file))

    def _use_up(self, file: str, finding: Finding) -> bool:
        """Return whether an entry covers a finding, and use it up."""
        for name in self._names(file):
            if self._left[name, finding.fingerprint] > 0:
                self._left[name, finding.fingerprint] -= 1
                return True
        return False

    def _names(self, file: str) -> tuple[str, str]:
        """Return the names of entries that may cover findings of a file."""
        return _relative(file, self._folder), ""


def entries_of(path: Path, findings: Iterable[Finding]) -> tuple[Entry, ...]:
    """Return the entries for findings in a baseline at a path."""
    folder = os.path.abspath(path.parent)
    counts = Counter(
        (
            _relative(finding.file, folder),
            finding.rule.id,
            ".".join(filter(None, (finding.cls, finding.function))),
            finding.fingerprint,
        )
        for finding in findings
        if finding.fixable
    )
    return tuple(sorted(Entry(*key, number) for key, number in counts.items()))


def write(path: Path, entries: Iterable[Entry]) -> None:
    """Write a baseline, as a whole or not at all; raise OSError."""
    findings = [
        {name: getattr(entry, name) for name in Entry.__dataclass_fields__} for entry in entries
    ]
    document = {"format": FORMAT, "findings": findings}
    write_atomically(path, (json.dumps(document, indent=1) + "\n").encode())


def read(path: Path) -> Baseline:
    """Return the baseline in a file; raise BaselineError."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BaselineError(
            f"{path}: cannot be read: {error.strerror or error}; regraft baseline write makes it"
        ) from error
    except (ValueError, RecursionError) as error:
        raise BaselineError(f"{path}: is not JSON: {error}") from error
    number = document.get("format") if isinstance(document, dict) else None
    if type(number) is not int or number != FORMAT:
        raise BaselineError(
            f"{path}: format {number!r} is unknown, this version reads format {FORMAT}: write it"
            " again with `regraft baseline write`"
        )
    findings = document.get("findings")
    if not isinstance(findings, list):
        raise BaselineError(f"{path}: `findings` has to be a list")
    return Baseline(path, (_parse_entry(path, finding) for finding in findings))


def _parse_entry(path: Path, finding: object) -> Entry:
    """Return the entry of a baseline; raise BaselineError."""
    values = finding if isinstance(finding, dict) else {}
    texts = [values.get(name) for name in ("file", "rule", "scope", "fingerprint")]
    number = values.get("count")
    if not all(isinstance(text, str) for text in texts) or type(number) is not int or number < 1:
        raise BaselineError(
            f"{path}: {finding!r} is no finding: it needs the texts file, rule, scope and"
            " fingerprint, and a count"
        )
    file, rule, scope, fingerprint = map(str, texts)
    return Entry(file, rule, scope, fingerprint, number)


def _relative(file: str, folder: str) -> str:
    """Return the path of a file as a baseline in a folder states it."""
    try:
        return os.path.relpath(file, folder).replace(os.sep, "/")
    except ValueError:  # on another drive
        return os.path.abspath(file).replace(os.sep, "/")
