"""Store the texts that files had before a rewrite, and put them back."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from regraft.source.cache_key import digest_of
from regraft.source.text import SourceError, diff, write_atomically

DIRECTORY = Path(".cache", "regraft", "undo")  # below the current folder
_INDEX, _PATCH = "files.json", "undo.patch"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class _Entry:
    """One file of a rewrite: its path, the digest of the bytes that were written, and the name of
    the copy of the bytes before; "" for a file that was not there."""

    path: str
    written: str
    copy: str


class UndoLog:
    """A folder with what the files of one rewrite were before it. It is made with the first file,
    and whole after each."""

    def __init__(self, directory: Path = DIRECTORY) -> None:
        self._directory = directory
        self._folder: Path | None = None
        self._entries: list[_Entry] = []

    def add(self, path: Path, before: bytes | None, after: bytes, encoding: str = "utf-8") -> None:
        """Store that a file is about to become `after`; `before` is None for a new file, `encoding`
        is that of both. Raises OSError where the folder cannot be written."""
        folder = self._folder = self._folder or _new_folder(self._directory)
        name = f"{len(self._entries)}.before" if before is not None else ""
        if before is not None:
            write_atomically(folder / name, before)
        self._entries.append(_Entry(str(path.resolve()), digest_of(after), name))
        self._write_index(folder)
        with (folder / _PATCH).open("a", encoding="utf-8") as patch:
            patch.write(diff(str(path), after, before or b"", encoding))

    def remove_last(self) -> None:
        """Forget the file that was added last, because it could not be rewritten."""
        self._entries.pop()
        if self._folder is not None:
            self._write_index(self._folder)

    def _write_index(self, folder: Path) -> None:
        """Write the list of files."""
        document = {"version": _VERSION, "files": [asdict(entry) for entry in self._entries]}
        write_atomically(folder / _INDEX, json.dumps(document, indent=1).encode())

    def remarks(self) -> Iterator[str]:
        """Yield a sentence on how the rewrite is taken back, if a file was added."""
        if self._entries:
            yield "`regraft undo` takes the rewrite back"


@dataclass(frozen=True, slots=True)
class Undone:
    """What became of one file: its path, and why it stays as it is; "" where its text of before is
    back."""

    path: str
    reason: str = ""


def undo_last(directory: Path = DIRECTORY) -> tuple[Undone, ...]:
    """Take the last rewrite back that is stored in a directory: put the text of before into each
    file that is still as it was written, and delete files that were new.

    Files that have changed since stay as they are. The stored texts are deleted where every file is
    back. Returns () where nothing is stored. Raises ValueError for a damaged folder, which it
    names.
    """
    folder = next(iter(sorted(_folders(directory), reverse=True)), None)
    if folder is None:
        return ()
    undone = tuple(_undo(entry, folder) for entry in _entries_in(folder))
    if not any(file.reason for file in undone):
        shutil.rmtree(folder)
    return undone


def _folders(directory: Path) -> Iterator[Path]:
    """Yield the folders of rewrites in a directory, which need not exist."""
    if directory.is_dir():
        yield from (folder for folder in directory.iterdir() if (folder / _INDEX).is_file())


def _new_folder(directory: Path) -> Path:
    """Make a folder in a directory whose name comes after those of all before."""
    folder = directory / f"{time.time_ns():020}"
    folder.mkdir(parents=True)
    write_atomically(directory / ".gitignore", b"*\n")
    return folder


def _entries_in(folder: Path) -> list[_Entry]:
    """Return the files of a rewrite; raises ValueError where its index is damaged or of another
    version."""
    try:
        document = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
        if document["version"] != _VERSION:
            raise ValueError(f"{folder} was written by another version of Regraft")
        return [_Entry(**entry) for entry in document["files"]]
    except (OSError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{folder / _INDEX} is damaged; {folder / _PATCH} has the diff") from error


def _undo(entry: _Entry, folder: Path) -> Undone:
    """Put the text of before into a file."""
    path = Path(entry.path)
    copy = folder / entry.copy
    try:
        before = copy.read_bytes() if entry.copy else None
        present = path.read_bytes() if path.exists() else None
        if present == before:
            return Undone(entry.path)
        if present is None or digest_of(present) != entry.written:
            place = f"; its text of before is {copy}" if entry.copy else ""
            return Undone(entry.path, f"it has changed since it was rewritten{place}")
        if before is None:
            path.unlink()
        else:
            write_atomically(path, before, path.stat().st_mode)
    except OSError as error:
        return Undone(entry.path, f"cannot be written: {error.strerror or error}")
    return Undone(entry.path)


def as_errors(undone: tuple[Undone, ...]) -> list[SourceError]:
    """Return an error for each file that stays as it is."""
    return [SourceError(file.path, 0, 0, file.reason) for file in undone if file.reason]
