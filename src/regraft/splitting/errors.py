"""Errors that say why a network cannot be split, with the place in its source."""

from __future__ import annotations

import ast


class Unsplittable(Exception):
    """Signals that the network cannot be split, with file, line and reason; nothing was written
    before."""

    def __init__(self, path: str, line: int, reason: str) -> None:
        super().__init__(f"{path}:{line}: {reason}")
        self.path, self.line, self.reason = path, line, reason


class Unrunnable(Unsplittable):
    """Signals that an operation fails on the example that is followed, on a side that the example
    does not take.

    Specialisation may succeed on another example.
    """


class UnseenSide(Unsplittable):
    """Signals that no checked input took a side of a decision.

    The network may be split where the loop around the decision stays a loop.
    """


class ReadInside(Unsplittable):
    """Signals that a call reads a value of a tensor, so that it has to be followed."""


def refuse(
    path: str, node: ast.AST, reason: str, kind: type[Unsplittable] = Unsplittable
) -> Unsplittable:
    """Return an error of the class `kind`, for the caller to raise, with the file, the line of
    `node` and the reason."""
    return kind(path, getattr(node, "lineno", 0), reason)
