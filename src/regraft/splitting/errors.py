"""The refusal: what a network cannot be split for, and where."""

from __future__ import annotations

import ast


class Unsplittable(Exception):
    """The network cannot be split: file, line and reason. Raised before anything is written."""

    def __init__(self, path: str, line: int, reason: str) -> None:
        super().__init__(f"{path}:{line}: {reason}")
        self.path, self.line, self.reason = path, line, reason


class Unrunnable(Unsplittable):
    """Something fails on the example that is followed, on a side that this one does not take; another may do."""


class ReadInside(Unsplittable):
    """A call reads a value of a tensor: it has to be followed."""


def refuse(path: str, node: ast.AST, reason: str, kind: type[Unsplittable] = Unsplittable) -> Unsplittable:
    return kind(path, getattr(node, "lineno", 0), reason)
