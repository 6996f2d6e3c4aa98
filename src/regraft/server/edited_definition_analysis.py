"""A quick look at the definition that somebody types in: its findings come at once, those of the
rest of the file stay as they were until the whole file is analysed."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from lsprotocol import types

from regraft.scanning import check_source
from regraft.server.analysis import Analysis, analysis_of_report, encoded
from regraft.server.diagnostics import diagnostics_of, moved
from regraft.source.text import SourceFile, parse

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Lines = tuple[int, int]  # the first and the last, from 1


@dataclass(frozen=True, slots=True)
class Glimpse:
    """The diagnostics of a text after a look at one definition."""

    diagnostics: list[types.Diagnostic]
    text: bytes


def glimpse_of(text: str, previous: Analysis) -> Glimpse | None:
    """Return the diagnostics of a text that differs within one definition from that of an analysis;
    None where more differs, or where the whole file has to be looked at.

    What other definitions show because of this one is as it was before the change.
    """
    before, project = previous.source, previous.project
    if before is None or previous.is_broken or project.baseline is not None:
        return None
    after = parse(previous.scan.file, encoded(text))
    if not isinstance(after, SourceFile):
        return None
    definition = _changed_definition(before, after)
    if definition is None:
        return None
    old, new = definition
    scan = check_source(after, previous.rules, lines=new)
    if scan.errors:
        return None
    look = analysis_of_report(text, project, previous.rules, scan, previous.positions.encoding)
    outside = [
        moved(diagnostic, new[1] - old[1]) if _line(diagnostic) > old[1] else diagnostic
        for diagnostic in diagnostics_of(previous)
        if not old[0] <= _line(diagnostic) <= old[1]
    ]
    within = [shown for shown in diagnostics_of(look) if new[0] <= _line(shown) <= new[1]]
    diagnostics = sorted((*outside, *within), key=lambda shown: shown.range.start)
    return Glimpse(diagnostics, look.positions.text)


def _line(diagnostic: types.Diagnostic) -> int:
    """Return the line, from 1, on which a diagnostic starts."""
    return diagnostic.range.start.line + 1


def _changed_definition(before: SourceFile, after: SourceFile) -> tuple[Lines, Lines] | None:
    """Return the lines of the one top-level definition that differs, in both versions; None where
    anything else differs, too."""
    old_body, new_body = before.tree.body, after.tree.body
    if len(old_body) != len(new_body):
        return None
    old_lines, new_lines = before.text.splitlines(), after.text.splitlines()
    shorter = min(len(old_lines), len(new_lines))
    above = next((i for i in range(shorter) if old_lines[i] != new_lines[i]), shorter)
    for old, new in zip(old_body, new_body, strict=True):
        if _last_line(old) <= above and _last_line(new) <= above:
            continue
        if not isinstance(old, _DEFINITIONS) or type(old) is not type(new):
            return None
        first, last, new_last = _first_line(old), _last_line(old), _last_line(new)
        is_within = first == _first_line(new) <= above
        is_end_equal = old_lines[last:] == new_lines[new_last:]
        has_name = old.name == getattr(new, "name", "")
        return (
            ((first, last), (first, new_last)) if is_within and is_end_equal and has_name else None
        )
    return None


def _first_line(statement: ast.stmt) -> int:
    """Return the first line of a statement with its decorators."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def _last_line(statement: ast.stmt) -> int:
    """Return the last line of a statement."""
    return statement.lineno if statement.end_lineno is None else statement.end_lineno
