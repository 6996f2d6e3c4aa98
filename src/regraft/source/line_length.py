"""The length to which the lines of rewritten code are kept."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regraft.source.text import SourceFile
from regraft.source.toml_library import tomllib

KEY = "line-length"
LENGTHS = range(40, 321)  # of the configuration; ruff takes no longer ones either
_HABITS = (88, 100, 119)  # of files, shortest first
# files and the tables in them that state a length: for Regraft, then for formatters
_OWN = (("regraft.toml", ()), ("pyproject.toml", ("tool", "regraft")))
_FORMATTERS = (
    ("ruff.toml", ()),
    (".ruff.toml", ()),
    ("pyproject.toml", ("tool", "ruff")),
    ("pyproject.toml", ("tool", "black")),
)
_INSTALLED = frozenset({"site-packages", "dist-packages"})


@functools.lru_cache(maxsize=4)
def line_length_of(source: SourceFile) -> int:
    """Return the length that the project states for Regraft or its formatter, else the one that the
    file itself keeps to: 88, 100 or 119. A text that is no Python file on disk belongs to no
    project."""
    path = Path(source.path)
    stated = stated_line_length(path) if path.suffix == ".py" and path.is_file() else 0
    if stated:
        return stated
    longest = max((len(line) for line in source.text.splitlines()), default=0)
    return next((length for length in _HABITS[:-1] if longest <= length), _HABITS[-1])


def stated_line_length(path: Path) -> int:
    """Return the line length that the configuration in the folder of a file or above states, for
    Regraft before its formatter; 0 where none does. Installed packages belong to no project."""
    return _stated_in(Path(os.path.abspath(path)).parent)


def forget_line_lengths() -> None:
    """Read the configuration of projects anew: its files may have changed."""
    _stated_in.cache_clear()
    line_length_of.cache_clear()


@functools.lru_cache(maxsize=4096)
def _stated_in(folder: Path) -> int:
    """Return `stated_line_length` for the files of a folder."""
    folders = [folder, *folder.parents]
    installed = next((place for place in folders if place.name in _INSTALLED), None)
    folders = folders[: folders.index(installed)] if installed else folders
    for tables in (_OWN, _FORMATTERS):
        for place in folders:
            for length in _lengths_in(place, tables):
                return length
    return 0


def _lengths_in(folder: Path, tables: tuple[tuple[str, tuple[str, ...]], ...]) -> Iterator[int]:
    """Yield the line lengths that the tables of the files in a folder state, in order."""
    for name, keys in tables:
        value: Any = _document(folder / name)
        for key in (*keys, KEY):
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, int) and value in LENGTHS:
            yield value


def _document(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file; {} where there is none, or where it cannot be read, which
    its own reader reports."""
    try:
        data = path.read_bytes()
        return tomllib.loads(data.decode("utf-8-sig")) if KEY.encode() in data else {}
    except (OSError, ValueError, RecursionError):
        return {}
