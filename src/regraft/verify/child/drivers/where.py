"""The statements of the source that an error came through."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator

from regraft.verify.child.replay import frames_of


def statements(error: BaseException, conditions: bool = False) -> Iterator[tuple[str, str]]:
    """Yield file names with the statement that an error came through there, innermost first.

    Of a statement that holds others only the lines before these are given. With `conditions` a `raise` comes with the
    `if` that it is the body of.
    """
    for frame in reversed(frames_of(error)):
        lines = linecache.getlines(frame.filename)
        line = frame.lineno or 0
        first, last = _extents(frame.filename).get(line, (1, 0))
        first = _asked(frame.filename).get(line, first) if conditions else first
        yield frame.filename, "".join(lines[first - 1 : last])


@functools.cache
def _tree(filename: str) -> ast.Module:
    """What a file holds; nothing where the source cannot be had."""
    try:
        return ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return ast.Module([], [])


@functools.cache
def _asked(filename: str) -> dict[int, int]:
    """The first line of an `if`, by the line of the `raise` that is its body."""
    conditions = (node for node in ast.walk(_tree(filename)) if isinstance(node, ast.If))
    return {node.body[0].lineno: node.lineno for node in conditions if isinstance(node.body[0], ast.Raise)}


@functools.cache
def _extents(filename: str) -> dict[int, tuple[int, int]]:
    """The first and last line, by line, of the innermost statement there."""
    found: dict[int, tuple[int, int]] = {}
    for node in ast.walk(_tree(filename)):  # those inside come later
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
            found.update(dict.fromkeys(range(node.lineno, last + 1), (node.lineno, last)))
    return found
