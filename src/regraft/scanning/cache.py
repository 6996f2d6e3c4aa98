"""Reports of files that were scanned before, one small file each in the user's cache directory.

The key is everything that a report depends on: the file's bytes, package and directory, the rules' text, Regraft's own
source and the version of Python. Files that it follows by imports are compared with what they were. An entry that
cannot be read is scanned again; a directory that cannot be written is left alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from regraft.rules import Rule
from regraft.scanning.findings import FileReport, Finding, Miss
from regraft.scanning.rules import CompiledRule
from regraft.source.cache_key import add_files, checksum, own_key
from regraft.source.names import package_of
from regraft.source.text import MAX_BYTES, SourceError, write_whole
from regraft.structure.model import Opaque
from regraft.structure.package import digest as file_digest

DAY = 24 * 60 * 60
KEPT_DAYS = 30
_PLAIN = tuple(one.name for one in fields(Finding) if one.name not in ("rule", "file", "patch"))
_TUPLES = ("start", "end", "lines", "tests", "also")


class Cache:
    """Reports by the content of their files, for one choice of rules."""

    def __init__(self, root: Path, rules: Sequence[CompiledRule]) -> None:
        self.root = root
        self.rules = {one.rule.id: one.rule for one in rules}
        self._base = _base(rules)
        self._packages: dict[Path, str] = {}
        self._digests: dict[str, str] = {}
        self._now = time.time()
        self._writable = True

    def load(self, path: Path) -> FileReport | None:
        """The report of a file that was scanned with the same content before."""
        try:
            if not path.is_file() or path.stat().st_size > MAX_BYTES:
                return None
            data = path.read_bytes()
        except OSError:
            return None  # the scan will say why
        entry = self._entry(path, data)
        try:
            text = entry.read_bytes()
            if self._now - entry.stat().st_mtime > DAY:
                os.utime(entry)  # still in use
        except OSError:
            return None
        head, _, content = text.partition(b"\n")
        if head != checksum(content):
            return None
        data = json.loads(content)
        if any(self._digest(other) != known for other, known in data["followed"].items()):
            return None
        return decode(data, str(path), self.rules)

    def _digest(self, path: str) -> str:
        """Of a file that others follow, read once."""
        found = self._digests.get(path)
        if found is None:
            found = self._digests[path] = file_digest(Path(path))
        return found

    def store(self, report: FileReport) -> None:
        """Keep the report of a file that could be read."""
        if report.source is None or report.errors or not self._writable:
            return
        entry = self._entry(Path(report.file), report.source.data)
        content = json.dumps(encode(report), separators=(",", ":")).encode()
        try:
            entry.parent.mkdir(parents=True, exist_ok=True)
            write_whole(entry, checksum(content) + b"\n" + content, 0o600)
        except OSError:
            self._writable = False

    def prune(self) -> None:
        """Once a day, delete the entries that nobody has used for a month."""
        stamp = self.root / "pruned"
        try:
            if not self.root.is_dir() or (stamp.exists() and self._now - stamp.stat().st_mtime < DAY):
                return
            stamp.touch()
            for entry in self.root.glob("??/*"):
                if self._now - entry.stat().st_mtime > KEPT_DAYS * DAY:
                    entry.unlink()
        except OSError:
            return  # another process prunes, or the directory is not ours

    def _entry(self, path: Path, data: bytes) -> Path:
        package = self._packages.get(path.parent)
        if package is None:
            package = self._packages[path.parent] = f"{package_of(path)}\0{path.parent.resolve()}"
        key = self._base.copy()
        key.update(f"{package}\0".encode())
        key.update(data)
        name = key.hexdigest()
        return self.root / name[:2] / name[2:]


def _base(rules: Sequence[CompiledRule]) -> hashlib.blake2b:
    """What the reports of all files depend on: Python, Regraft's own files, the chosen rules."""
    key = own_key()
    add_files(key, [one.rule.path for one in rules])
    key.update("\0".join(f"{one.rule.id} {one.withheld}" for one in rules).encode())
    return key


def encode(report: FileReport) -> dict[str, Any]:
    """What of a report is plain data: everything but the file's name, its source, and patches."""
    return {
        "findings": [
            {"rule": one.rule.id, **{name: getattr(one, name) for name in _PLAIN}} for one in report.findings
        ],
        "misses": [[one.rule.id, one.line, one.column, one.scope, one.reason] for one in report.misses],
        "opaque": [[one.line, one.column, one.reason] for one in report.opaque],
        "errors": [[one.line, one.column, one.message] for one in report.errors],
        "followed": dict(report.followed),
        "totals": [report.classes, report.nodes, report.seconds],
    }


def decode(data: Mapping[str, Any], file: str, rules: Mapping[str, Rule]) -> FileReport:
    """The report that `encode` was given, without source and patches."""
    classes, nodes, seconds = data["totals"]
    return FileReport(
        file,
        None,
        tuple(_finding(one, file, rules) for one in data["findings"]),
        tuple(Miss(rules[rule], file, *rest) for rule, *rest in data["misses"]),
        tuple(Opaque(*one) for one in data["opaque"]),
        tuple(SourceError(file, *one) for one in data["errors"]),
        classes,
        nodes,
        seconds,
        data["followed"],
    )


def _finding(data: Mapping[str, Any], file: str, rules: Mapping[str, Rule]) -> Finding:
    plain: dict[str, Any] = {
        name: tuple(value) if name in _TUPLES else value for name, value in data.items() if name != "rule"
    }
    return Finding(rule=rules[data["rule"]], file=file, **plain)
