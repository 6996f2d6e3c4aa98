"""Errors in words."""

from __future__ import annotations


def shorten_error(error: BaseException | None, length: int = 300) -> str:
    """Return an error's class and the beginning of its message, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:length]}"
