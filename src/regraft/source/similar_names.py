"""Hints for names that were misspelt."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


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


def suggest_path(path: Path, *, shown: Path | None = None, count: int = 1) -> str:
    """Return "; did you mean A or B?" for at most `count` files or folders beside a missing path,
    with its suffix and a name spelt almost like it; "" for none, and for a path that is there.

    shown: the path as the user wrote it, where `path` is another form of it.
    """
    if path.exists():
        return ""
    try:
        stems = [entry.stem for entry in path.parent.iterdir() if entry.suffix == path.suffix]
    except OSError:
        return ""
    around = (str((shown or path).with_name("x"))[:-1], path.suffix)
    form = "{}".join(text.replace("{", "{{").replace("}", "}}") for text in around)
    return suggest(path.stem, stems, form=form, count=count)
