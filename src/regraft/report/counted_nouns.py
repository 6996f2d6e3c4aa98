"""Words of messages."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """Return a number with its noun: 1 rule, 2 rules."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
