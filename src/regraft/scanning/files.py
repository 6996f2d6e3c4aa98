"""The search for the Python files below the paths that a user names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regraft.source.path_patterns import PathPatterns, read_gitignore
from regraft.source.similar_names import suggest_path
from regraft.source.text import SourceError

# besides hidden folders and virtual environments by any name
SKIPPED_DIRECTORIES = frozenset({"venv", "__pycache__", "node_modules", "build", "dist"})
NOTEBOOK = "notebooks are not read; convert it to a .py file (jupyter nbconvert --to script)"
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


@dataclass(slots=True)
class FileSearch:
    """The search for Python files: what it leaves out below folders, and what it came across.

    exclude            patterns of files and folders that are left out
    respect_gitignore  leave out what `.gitignore` files leave out
    force_exclude      leave out excluded files also where the user names them
    notebooks          the number of notebooks so far, which are not read
    """

    exclude: tuple[PathPatterns, ...] = ()
    respect_gitignore: bool = True
    force_exclude: bool = False
    notebooks: int = 0
    _visited: set[str] = field(default_factory=set)

    def python_files(self, paths: Sequence[Path]) -> Iterator[Path | SourceError]:
        """Yield the Python files under the paths, each once, in order; for a path that is missing
        or a notebook, an error.

        Folders are followed through symbolic links, but never twice, so that cycles end.
        """
        for path in paths:
            if not path.exists():
                reason = f"no such file or directory{suggest_path(path)}"
                yield SourceError(str(path), 0, 0, reason)
            elif self.force_exclude and self._is_excluded(path, path.is_dir()):
                continue
            elif path.is_dir():
                yield from self._files_below(path, self._gitignores_above(path))
            elif path.suffix == ".ipynb":
                yield SourceError(str(path), 0, 0, NOTEBOOK)
            elif self._is_new(path):
                yield path

    def comes_to(self, file: Path, folder: Path) -> bool:
        """Return whether the search below a folder reads a file, which need not exist; of a file
        elsewhere, whether no pattern excludes it."""
        file, folder = Path(os.path.abspath(file)), Path(os.path.abspath(folder))
        if self._is_excluded(file, False):
            return False
        if not file.is_relative_to(folder):
            return True
        gitignores = self._gitignores_above(folder)
        for directory in reversed(file.relative_to(folder).parents[:-1]):
            below = folder / directory
            if self._is_excluded(below, True) or _are_ignored(gitignores, below, True):
                return False
            if _is_skipped(below):
                return False
            gitignores = self._with_own(gitignores, below)
        return not _are_ignored(gitignores, file, False)

    def _files_below(
        self, directory: Path, gitignores: tuple[PathPatterns, ...]
    ) -> Iterator[Path | SourceError]:
        """Yield the Python files below a directory, sorted, and errors of reading.

        gitignores  the patterns of `.gitignore` files that apply to it, the nearest last
        """
        if not self._is_new(directory):
            return
        try:
            entries = sorted(directory.iterdir())
        except OSError as error:
            yield SourceError(str(directory), 0, 0, error.strerror or str(error))
            return
        for entry in entries:
            is_directory = entry.is_dir()
            if not (is_directory or entry.suffix in (".py", ".ipynb")):
                continue
            if self._is_excluded(entry, is_directory) or _are_ignored(
                gitignores, entry, is_directory
            ):
                continue
            if is_directory:
                if not _is_skipped(entry):
                    yield from self._files_below(entry, self._with_own(gitignores, entry))
            elif entry.suffix == ".ipynb":
                self.notebooks += 1
            elif self._is_new(entry):
                yield entry

    def _is_new(self, path: Path) -> bool:
        """Return whether a path was not visited yet, and remember it."""
        real_path = os.path.realpath(path)
        if real_path in self._visited:
            return False
        self._visited.add(real_path)
        return True

    def _is_excluded(self, path: Path, is_directory: bool) -> bool:
        return any(patterns.match(path, is_directory) for patterns in self.exclude)

    def _gitignores_above(self, directory: Path) -> tuple[PathPatterns, ...]:
        """Return the patterns of `.gitignore` files that apply in a directory that the user names:
        its own, and those above it in its repository, unless they ignore the directory itself."""
        if not self.respect_gitignore:
            return ()
        absolute = Path(os.path.abspath(directory))
        above: tuple[PathPatterns, ...] = ()
        folders = _repository_folders(absolute)
        for folder in folders:
            if _are_ignored(above, folder, True):
                above = ()
                break
            if folder != absolute:
                above = self._with_own(above, folder)
        own = read_gitignore(absolute)
        hides_itself = own is not None and own.patterns[-1:] == ("*",)  # a tool's own folder
        return above if own is None or hides_itself else (*above, own)

    def _with_own(
        self, gitignores: tuple[PathPatterns, ...], directory: Path
    ) -> tuple[PathPatterns, ...]:
        """Return the patterns with those of the directory's own `.gitignore`."""
        own = read_gitignore(directory) if self.respect_gitignore else None
        return gitignores if own is None else (*gitignores, own)


def _repository_folders(folder: Path) -> list[Path]:
    """Return the folders from the top of the git repository down to a folder; without a repository
    the folder alone."""
    for number, directory in enumerate((folder, *folder.parents)):
        if (directory / ".git").exists():
            return [*reversed((folder, *folder.parents)[: number + 1])]
    return [folder]


def _are_ignored(gitignores: Sequence[PathPatterns], path: Path, is_directory: bool) -> bool:
    """Return whether `.gitignore` files ignore a path: the nearest that mentions it decides."""
    for patterns in reversed(gitignores):
        decision = patterns.decide(path, is_directory)
        if decision is not None:
            return decision
    return False


def _is_skipped(directory: Path) -> bool:
    """Return whether a folder is left out by its name or kind: hidden, a virtual environment, or
    what tools write."""
    name = directory.name
    return (
        name.startswith(".")
        or name in SKIPPED_DIRECTORIES
        or (directory / "pyvenv.cfg").exists()
        or (directory / "conda-meta").exists()
    )
