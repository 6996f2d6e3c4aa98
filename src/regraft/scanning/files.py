"""The Python files below the paths that a user names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from regraft.source.text import SourceError

SKIPPED_DIRECTORIES = frozenset({".git", ".venv", "venv", "__pycache__", "node_modules", ".cache", "build", "dist"})


def python_files(paths: Sequence[Path]) -> Iterator[Path | SourceError]:
    """The Python files under the paths, each once, in order; a path that is not there is an error.

    Directories are followed through symbolic links, but never twice, so cycles end.
    """
    seen: set[str] = set()
    for path in paths:
        if not path.exists():
            yield SourceError(str(path), 0, 0, "no such file or directory")
        elif path.is_dir():
            yield from _walk(path, seen)
        elif os.path.realpath(path) not in seen:
            seen.add(os.path.realpath(path))
            yield path


def _walk(directory: Path, seen: set[str]) -> Iterator[Path | SourceError]:
    real = os.path.realpath(directory)
    if real in seen:
        return
    seen.add(real)
    try:
        entries = sorted(directory.iterdir())
    except OSError as error:
        yield SourceError(str(directory), 0, 0, error.strerror or str(error))
        return
    for entry in entries:
        if entry.is_dir():
            if entry.name not in SKIPPED_DIRECTORIES:
                yield from _walk(entry, seen)
        elif entry.suffix == ".py" and os.path.realpath(entry) not in seen:
            seen.add(os.path.realpath(entry))
            yield entry
