"""The one top-level definition in which two versions of a file differ."""

from __future__ import annotations

import ast

from regraft.source.text import SourceFile

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Lines = tuple[int, int]  # the first and the last, from 1


def changed_definition(before: SourceFile, after: SourceFile) -> tuple[Lines, Lines] | None:
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
