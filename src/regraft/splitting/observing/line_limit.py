"""A limit of the lines of Python that a call runs: with inputs that nobody gave, a loop of a
network may not end."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any


class LineLimit:
    """Counts the lines of Python, and the calls and returns, that run in functions called in its
    `with` block; raises RuntimeError in them after `most`, if that is no None.

    A trace function that was set before gets no events meanwhile.
    """

    def __init__(self, most: int | None = None) -> None:
        self.most, self.count = most, 0
        self._trace_before: Any = None

    def __enter__(self) -> LineLimit:
        self._trace_before = sys.gettrace()
        sys.settrace(self._count_event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._trace_before)

    def _count_event(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Count an event of a frame, as `sys.settrace` reports it."""
        self.count += 1
        if self.most is not None and self.count > self.most:
            raise RuntimeError(f"more than {self.most} lines ran")
        return self._count_event
