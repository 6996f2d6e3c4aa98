"""The reason why a match is not rewritten."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False)
class Withheld(Exception):
    """The reason why a match is not rewritten, with the line of the obstacle; raised, or returned
    instead of edits."""

    reason: str
    line: int
