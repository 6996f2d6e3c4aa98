"""Reports of files that were scanned before, one small file each in the user's cache directory.

The key is everything that a report depends on: the file's bytes, package and directory, the rules'
text, Regraft's own source and the version of Python. Files that the scan followed by imports are
compared by their digests. An entry that cannot be read is scanned again; a directory that cannot be
written is left alone.
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
from regraft.scanning.compiled_rules import CompiledRule
from regraft.scanning.findings import FileReport, Finding, IgnoreComment, Miss
from regraft.source.cache_key import add_files, entry_content, own_key, write_entry
from regraft.source.line_length import stated_line_length
from regraft.source.qualified_names import package_of
from regraft.source.text import MAX_BYTES, SourceError
from regraft.structure.package import digest as file_digest
from regraft.structure.values_and_nodes import Opaque

DAY = 24 * 60 * 60
RETENTION_DAYS = 30
_PLAIN_FIELDS = tuple(
    field.name for field in fields(Finding) if field.name not in ("rule", "file", "patch", "worth")
)
_TUPLE_FIELDS = ("start", "end", "lines", "tests", "also")


class Cache:
    """Reports of scans for one choice of rules, by the content of the scanned files."""

    def __init__(self, root: Path, rules: Sequence[CompiledRule]) -> None:
        self.root = root
        self.rules = {rule.rule.id: rule.rule for rule in rules}
        self._base_key = _base_key(rules)
        self._packages: dict[Path, str] = {}
        self._digests: dict[str, str] = {}
        self._now = time.time()
        self._writable = True

    def load(self, path: Path) -> FileReport | None:
        """Return the report of a file that was scanned with the same content before; None where
        there is none."""
        try:
            if not path.is_file() or path.stat().st_size > MAX_BYTES:
                return None
            data = path.read_bytes()
        except OSError:
            return None  # the scan will say why
        content = self._read_entry(self._entry_path(path, data))
        if content is None:
            return None
        data = json.loads(content)
        followed = data["followed"].items()
        if any(self._digest_of(followed_path) != digest for followed_path, digest in followed):
            return None
        return decode(data, str(path), self.rules)

    def _read_entry(self, entry: Path) -> bytes | None:
        """Return the content of an entry, which counts as used now; None where there is none."""
        try:
            text = entry.read_bytes()
            if self._now - entry.stat().st_mtime > DAY:
                os.utime(entry)  # still in use
        except OSError:
            return None
        return entry_content(text)

    def _digest_of(self, path: str) -> str:
        """Return the digest of a file that others follow; each file is read once."""
        digest = self._digests.get(path)
        if digest is None:
            digest = self._digests[path] = file_digest(Path(path))
        return digest

    def store(self, report: FileReport) -> None:
        """Keep a report, unless the file could not be read or the cache cannot be written."""
        if report.source is None or report.errors or not self._writable:
            return
        entry = self._entry_path(Path(report.file), report.source.data)
        content = json.dumps(encode(report), separators=(",", ":")).encode()
        try:
            write_entry(entry, content)
        except OSError:
            self._writable = False

    def prune(self) -> None:
        """Delete the entries that nobody has used for a month; do so at most once a day."""
        stamp = self.root / "pruned"
        try:
            if not self.root.is_dir() or (
                stamp.exists() and self._now - stamp.stat().st_mtime < DAY
            ):
                return
            stamp.touch()
            for entry in self.root.glob("??/*"):
                if self._now - entry.stat().st_mtime > RETENTION_DAYS * DAY:
                    entry.unlink()
        except OSError:
            return  # another process prunes, or the directory is not ours

    def _entry_path(self, path: Path, data: bytes) -> Path:
        """Return the path of the entry for a file with the content `data`."""
        package = self._packages.get(path.parent)
        if package is None:
            package = self._packages[path.parent] = f"{package_of(path)}\0{path.parent.resolve()}"
        key = self._base_key.copy()
        key.update(f"{package}\0{stated_line_length(path)}\0".encode())
        key.update(data)
        name = key.hexdigest()
        return self.root / name[:2] / name[2:]


def _base_key(rules: Sequence[CompiledRule]) -> hashlib.blake2b:
    """Return a hash of what the reports of all files depend on: Python, Regraft's own files, the
    chosen rules."""
    key = own_key(of_scans=True)
    add_files(key, [rule.rule.path for rule in rules])
    key.update("\0".join(f"{rule.rule.id} {rule.withheld}" for rule in rules).encode())
    return key


def encode(report: FileReport) -> dict[str, Any]:
    """Return a report as plain data: all but the file's name, its source, and patches."""
    return {
        "findings": [
            {"rule": finding.rule.id, **{name: getattr(finding, name) for name in _PLAIN_FIELDS}}
            for finding in report.findings
        ],
        "misses": [
            [miss.rule.id, miss.line, miss.column, miss.scope, miss.reason]
            for miss in report.misses
        ],
        "opaque": [[node.line, node.column, node.reason] for node in report.opaque],
        "errors": [[error.line, error.column, error.message] for error in report.errors],
        "followed": dict(report.followed),
        "ignores": [
            [comment.line, comment.column, comment.selectors, comment.problem, comment.suppressed]
            for comment in report.ignores
        ],
        "totals": [report.classes, report.nodes, report.seconds],
    }


def decode(encoded: Mapping[str, Any], file: str, rules: Mapping[str, Rule]) -> FileReport:
    """Return the report that `encode` was given, without source and patches."""
    classes, nodes, seconds = encoded["totals"]
    return FileReport(
        file,
        None,
        tuple(_decode_finding(finding, file, rules) for finding in encoded["findings"]),
        tuple(Miss(rules[rule], file, *values) for rule, *values in encoded["misses"]),
        tuple(Opaque(*values) for values in encoded["opaque"]),
        tuple(SourceError(file, *values) for values in encoded["errors"]),
        classes,
        nodes,
        seconds,
        encoded["followed"],
        tuple(
            IgnoreComment(line, column, tuple(selectors), problem, tuple(suppressed))
            for line, column, selectors, problem, suppressed in encoded["ignores"]
        ),
    )


def _decode_finding(encoded: Mapping[str, Any], file: str, rules: Mapping[str, Rule]) -> Finding:
    """Return the finding that `encode` was given, without its patch."""
    values: dict[str, Any] = {
        name: tuple(value) if name in _TUPLE_FIELDS else value
        for name, value in encoded.items()
        if name != "rule"
    }
    return Finding(rule=rules[encoded["rule"]], file=file, **values)
