"""Write an error as one short line of text."""

from __future__ import annotations


def shorten_error(error: BaseException | None, length: int = 300) -> str:
    """Return an error's class and at most `length` characters of its message, as "Class: message"
    on one line; "NoneType: None" for None."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:length]}"
