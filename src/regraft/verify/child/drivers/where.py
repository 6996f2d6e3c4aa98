"""The statements of the source that an error came through."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator

from regraft.verify.child.replay import frames_of


def statements(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yield file names with the statement that an error came through there, innermost first.

    Of a statement that holds others only the lines before these are given.
    """
    for frame in reversed(frames_of(error)):
        lines = linecache.getlines(frame.filename)
        first, last = _extents(frame.filename).get(frame.lineno or 0, (1, 0))
        yield frame.filename, "".join(lines[first - 1 : last])


@functools.cache
def _extents(filename: str) -> dict[int, tuple[int, int]]:
    """The first and last line, by line, of the innermost statement there; none where the source cannot be had."""
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return {}
    found: dict[int, tuple[int, int]] = {}
    for node in ast.walk(tree):  # those inside come later
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
            found.update(dict.fromkeys(range(node.lineno, last + 1), (node.lineno, last)))
    return found
