"""Patterns of files, in the notation of `.gitignore`, relative to a folder."""

from __future__ import annotations

import os
import re
import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

MOST_STARS = 5  # between two slashes; the time of a match grows with their power
_STARS = re.compile(r"\*+")


@dataclass(frozen=True, slots=True)
class PathPatterns:
    """Patterns of `.gitignore`, relative to a folder; no file outside the folder fits them."""

    base: Path = Path()
    patterns: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise ValueError for a pattern that cannot be read."""
        for pattern in self.patterns:
            if not pattern.strip():
                raise ValueError("patterns of files that are not empty")
            try:
                _spec((pattern,))
            except ValueError as error:
                raise ValueError(
                    f"patterns as in .gitignore; {pattern!r} cannot be read"
                ) from error

    def decide(self, path: str | Path, is_directory: bool = False) -> bool | None:
        """Return whether the patterns ignore a path, or re-include it (False); None where they do
        not mention it."""
        if not self.patterns:
            return None
        relative = os.path.relpath(path, self.base)
        if relative == os.curdir or relative.split(os.sep, 1)[0] == os.pardir:
            return None
        name = relative.replace(os.sep, "/") + ("/" if is_directory else "")
        return _spec(self.patterns).check_file(name).include

    def match(self, path: str | Path, is_directory: bool = False) -> bool:
        """Return whether the patterns ignore a path."""
        return self.decide(path, is_directory) is True


@lru_cache(maxsize=256)
def _spec(patterns: tuple[str, ...]) -> GitIgnoreSpec:
    """Return the compiled patterns; raise ValueError for one that cannot be read."""
    from pathspec import GitIgnoreSpec

    if any(len(_STARS.findall(part)) > MOST_STARS for text in patterns for part in text.split("/")):
        raise ValueError(f"no pattern: more than {MOST_STARS} stars between two slashes")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of `re`, about a pattern's own spelling
            return GitIgnoreSpec.from_lines(patterns)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"no pattern: {error}") from error


def read_gitignore(folder: Path) -> PathPatterns | None:
    """Return the patterns of the `.gitignore` in a folder, without those that git cannot read
    either; None where there is none."""
    try:
        text = (folder / ".gitignore").read_bytes().decode(errors="surrogateescape")
    except OSError:
        return None
    patterns = tuple(text.splitlines())
    if not _is_readable(patterns):
        patterns = tuple(pattern for pattern in patterns if _is_readable((pattern,)))
    return PathPatterns(folder, patterns)


def _is_readable(patterns: tuple[str, ...]) -> bool:
    try:
        _spec(patterns)
    except ValueError:
        return False
    return True
