"""The scanning of one file: every rule is matched with every body in which it may match."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tokenize import TokenError

from regraft.rewriting.vendored_source import BEGINNING
from regraft.scanning.compiled_rules import CompiledRule
from regraft.scanning.findings import FileReport
from regraft.scanning.ignore_comments import suppress
from regraft.scanning.rule_application import findings_of, match_bodies
from regraft.source import text
from regraft.source.garbage_collection import uncollected
from regraft.source.imports import Imports
from regraft.source.text import SourceError, SourceFile
from regraft.structure import Module

_VENDORED = BEGINNING.encode()
MAX_GARBAGE = 250_000  # objects that are allocated between two collections


def check_file(
    path: Path,
    rules: Sequence[CompiledRule],
    home: str = "regraft.ops",
    explain: bool = False,
    *,
    inlines: bool = True,
) -> FileReport:
    """Return the report of one file on disk."""
    started = time.perf_counter()
    with uncollected():
        source = text.read(path)
        if isinstance(source, SourceError):
            return FileReport(
                str(path), None, (), (), (), (source,), 0, 0, time.perf_counter() - started
            )
        return check_source(source, rules, home, explain, inlines=inlines)


def check_text(
    name: str, data: bytes, rules: Sequence[CompiledRule], explain: bool = False
) -> FileReport:
    """Return the report of a text that stands for the file of a name."""
    source = text.parse(name, data)
    if isinstance(source, SourceError):
        return failed(source)
    return check_source(source, rules, explain=explain)


def failed(error: SourceError, *, is_file: bool = True) -> FileReport:
    """Return the report of a file that could not be read, or of a path that is not that of a file
    to scan."""
    return FileReport(error.file, None, (), (), (), (error,), 0, 0, 0.0, is_file=is_file)


def collected_between(reports: Iterable[FileReport]) -> Iterator[FileReport]:
    """Yield the reports, with garbage collected only between files, where few objects are alive."""
    with uncollected():
        for report in reports:
            yield report
            if gc.get_count()[0] > MAX_GARBAGE:
                gc.collect()


def check_source(
    source: SourceFile,
    rules: Sequence[CompiledRule],
    home: str = "regraft.ops",
    explain: bool = False,
    *,
    inlines: bool = True,
    lines: tuple[int, int] | None = None,
) -> FileReport:
    """Return the report of one parsed file, with findings sorted by place.

    With `explain` every function is analysed, so that near misses and places that were not followed
    stand beside the findings; without it only those functions are in which a rule may match.
    `inlines` is that of `Module`. With `lines`, a first and a last one, only functions that start
    on them are looked at, and what another function shows by itself may be reported here, too.
    """
    with uncollected():
        return _scan_source(source, rules, home, explain, inlines, lines)


def _scan_source(
    source: SourceFile,
    rules: Sequence[CompiledRule],
    home: str,
    explain: bool,
    inlines: bool,
    lines: tuple[int, int] | None,
) -> FileReport:
    """Return the report of one parsed file; a file that cannot be analysed has an error."""
    started = time.perf_counter()
    try:
        # keeps methods of other libraries' tensors from looking like PyTorch's, too
        if b"torch" not in source.text or source.text.startswith(_VENDORED):
            return _empty_report(source, started)
        module = Module(source, inlines=inlines)
        imports = Imports(source, module.names, home)
        results = match_bodies(module, rules, explain, lines)
        classes = sum(bool(module.methods(cls)) for cls in module.classes.values())
        findings = findings_of(results.matches, module, rules, imports, lines)
        module.release()
        findings.sort(key=lambda finding: (finding.start, finding.rule.id))
        shown, ignores = suppress(source, findings)
    except RecursionError:
        return _failure_report(source, "nested too deeply to analyse", started)
    except ValueError as problem:  # Python refuses to print integers of more than 4,300 digits
        return _failure_report(source, f"cannot be analysed: {problem}", started)
    except (TokenError, SyntaxError) as problem:
        return _failure_report(source, f"comments cannot be read: {problem}", started)
    # without `explain` the misses and opaque nodes are those of some functions only
    misses, opaque = (results.misses, results.opaque) if explain else ([], [])
    misses.sort(key=lambda miss: (miss.line, miss.column))
    return FileReport(
        source.path,
        source,
        shown,
        tuple(misses),
        tuple(opaque),
        (),
        classes,
        results.nodes,
        time.perf_counter() - started,
        module.package_files.followed,
        ignores,
    )


def _empty_report(source: SourceFile, started: float) -> FileReport:
    """Return the report of a file in which nothing is matched: it does not mention PyTorch, or
    Regraft wrote it."""
    ignores = suppress(source, ())[1]
    seconds = time.perf_counter() - started
    return FileReport(source.path, source, (), (), (), (), 0, 0, seconds, ignores=ignores)


def _failure_report(source: SourceFile, message: str, started: float) -> FileReport:
    """Return the report of a file whose analysis, begun at the time `started`, failed."""
    error = SourceError(source.path, 0, 0, message)
    seconds = time.perf_counter() - started
    return FileReport(source.path, source, (), (), (), (error,), 0, 0, seconds)
