"""Functions that follow a split while it runs."""

from __future__ import annotations

from collections.abc import Callable

Watch = Callable[[str], None]  # called with what is done


def ignore(_: str) -> None:
    """Do nothing with what is done."""
