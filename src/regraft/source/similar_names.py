"""Hints for names that were misspelt."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggest(
    name: str, names: Iterable[str], *, form: str = "{}", count: int = 1, otherwise: str = ""
) -> str:
    """Return "; did you mean A or B?" for at most `count` names that are spelt almost like a name,
    each written in a form; where there is none, `otherwise` behind a semicolon, or "".
    """
    similar = difflib.get_close_matches(name, sorted(set(names)), count)
    if similar:
        return f"; did you mean {' or '.join(map(form.format, similar))}?"
    return f"; {otherwise}" if otherwise else ""
