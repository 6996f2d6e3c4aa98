"""Verdicts on a change of one definition, in a file of the test's own directory."""

from __future__ import annotations

from pathlib import Path

from regraft.verification import Verdict, verify


def verdict_on(folder: Path, text: str, before: str, after: str) -> Verdict:
    """Return the verdict on a file with `text` in which `before` becomes `after`."""
    assert before in text
    path = folder / "model.py"
    path.write_text(text)
    (verdict,) = verify(path, text.replace(before, after).encode())
    return verdict
