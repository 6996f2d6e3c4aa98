"""Errors that say why a network cannot be split, with the place in its source."""

from __future__ import annotations

import inspect
import traceback
from typing import Any


class Unsplittable(Exception):
    """Signals that the network cannot be split, with file, line and reason; nothing was written
    before. The line is 0, and not in the message, where there is none."""

    def __init__(self, path: str, line: int, reason: str) -> None:
        super().__init__(f"{path}:{line}: {reason}" if line else f"{path}: {reason}")
        self.path, self.line, self.reason = path, line, reason


class Unrunnable(Unsplittable):
    """Signals that an operation fails on the example that is followed, on a side that the example
    does not take, or with sizes that are made up beside it.

    Specialisation may succeed on another example.
    """


class UnseenSide(Unsplittable):
    """Signals that no checked input took a side of a decision.

    The network may be split where the loop around the decision stays a loop.
    """


class UncompilableRegion(Unsplittable):
    """Signals that nothing can take a region.

    The network may be split where the calls in its statements are followed. places: the file and
    line of each statement.
    """

    def __init__(self, place: tuple[str, int], reason: str, places: frozenset[tuple[str, int]]):
        super().__init__(*place, reason)
        self.places = places


class ReadInside(Unsplittable):
    """Signals that a call reads a value of a tensor, so that it has to be followed."""


def line_of_forward(model: Any) -> int:
    """Return the first line of the forward of a network's class, decorators included, at which the
    network as a whole is refused."""
    line: int = inspect.unwrap(type(model).forward).__code__.co_firstlineno
    return line


def line_of_failure(problem: Exception, path: str, line: int) -> int:
    """Return the line of the file `path` where an exception was raised, in itself or in what this
    line calls; `line` where none of the file was running."""
    frames = traceback.extract_tb(problem.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == path and frame.lineno]
    return lines[-1] if lines else line
