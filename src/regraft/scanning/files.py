"""The search for the Python files below the paths that a user names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from regraft.source.text import SourceError

SKIPPED_DIRECTORIES = frozenset(
    {".git", ".venv", "venv", "__pycache__", "node_modules", ".cache", "build", "dist"}
)
# folders and files that are no model of the project's own
_SECONDARY_FOLDERS = re.compile(
    r"_?(tests?|testing|examples?|third_?party|vendor(ed)?|extern(al)?)", re.IGNORECASE
)
_SECONDARY_FILES = re.compile(r"test_.*\.py|.*_test\.py|conftest\.py")


def is_secondary(file: Path, paths: Sequence[Path]) -> bool:
    """Return whether a file that is below one of the paths, and is none of them, belongs to tests,
    examples or vendored code, by its name or that of a folder between."""
    if file in paths:
        return False
    below = [file.relative_to(path) for path in paths if file.is_relative_to(path)]
    folders = min((path.parts[:-1] for path in below), key=len, default=())
    return bool(_SECONDARY_FILES.fullmatch(file.name)) or any(
        map(_SECONDARY_FOLDERS.fullmatch, folders)
    )


def python_files(paths: Sequence[Path]) -> Iterator[Path | SourceError]:
    """Yield the Python files under the paths, each once, in order; for a path that is missing, an
    error.

    Directories are followed through symbolic links, but never twice, so that cycles end.
    """
    visited: set[str] = set()
    for path in paths:
        if not path.exists():
            yield SourceError(str(path), 0, 0, "no such file or directory")
        elif path.is_dir():
            yield from _files_below(path, visited)
        elif os.path.realpath(path) not in visited:
            visited.add(os.path.realpath(path))
            yield path


def _files_below(directory: Path, visited: set[str]) -> Iterator[Path | SourceError]:
    """Yield the Python files below a directory, sorted, that are not in `visited`, and add them.

    Yield errors of reading.
    """
    real_path = os.path.realpath(directory)
    if real_path in visited:
        return
    visited.add(real_path)
    try:
        entries = sorted(directory.iterdir())
    except OSError as error:
        yield SourceError(str(directory), 0, 0, error.strerror or str(error))
        return
    for entry in entries:
        if entry.is_dir():
            if entry.name not in SKIPPED_DIRECTORIES:
                yield from _files_below(entry, visited)
        elif entry.suffix == ".py" and os.path.realpath(entry) not in visited:
            visited.add(os.path.realpath(entry))
            yield entry
