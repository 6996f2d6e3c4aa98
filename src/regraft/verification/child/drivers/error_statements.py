"""Find the source statements that an error came through."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator

from regraft.verification.child.call_execution import frames_of


def statements_of_error(
    error: BaseException, conditions: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield pairs of a file name and the source lines of a statement there that an error came
    through, innermost first; "" where the source is not available.

    Of a compound statement only the lines before its body are yielded. With `conditions`, a `raise`
    that begins the body of an `if` comes with that `if`. Nothing is yielded for an error that did
    not pass `drop_traceback`, which keeps the frames.
    """
    for frame in reversed(frames_of(error)):
        lines = linecache.getlines(frame.filename)
        line = frame.lineno or 0
        first, last = _extents(frame.filename).get(line, (1, 0))
        first = _condition_lines(frame.filename).get(line, first) if conditions else first
        yield frame.filename, "".join(lines[first - 1 : last])


@functools.cache
def _parse_file(filename: str) -> ast.Module:
    """Return the syntax tree of a file; an empty module where the source is not available or does
    not parse. Cached."""
    try:
        return ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return ast.Module([], [])


@functools.cache
def _condition_lines(filename: str) -> dict[int, int]:
    """Return, by the line of a `raise` that begins the body of an `if`, the first line of that
    `if`. Cached."""
    conditions = (node for node in ast.walk(_parse_file(filename)) if isinstance(node, ast.If))
    return {
        node.body[0].lineno: node.lineno
        for node in conditions
        if isinstance(node.body[0], ast.Raise)
    }


@functools.cache
def _extents(filename: str) -> dict[int, tuple[int, int]]:
    """Return by line number the first and last line of the innermost statement there; a compound
    statement ends before its body. Lines without a statement are left out. Cached."""
    extent_by_line: dict[int, tuple[int, int]] = {}
    for node in ast.walk(_parse_file(filename)):  # inner statements come after outer ones
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
            extent_by_line.update(dict.fromkeys(range(node.lineno, last + 1), (node.lineno, last)))
    return extent_by_line
