"""The files that code under test read in a verification, and the state that they were in."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LARGE = 2**24  # bytes; the content of larger files is not read
_ABSENT = "absent"
_OF_PACKAGES = (".dist-info", ".egg-info", ".egg-link", ".pth")  # endings; the names have versions


@dataclass(frozen=True, slots=True)
class Reads:
    """What code under test depends on beside its own file.

    files    paths of files that it read or looked for, other than those of installed packages
    folders  paths of the folders in which packages are installed for its interpreter
    """

    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Reads:
        """Return the reads in the result of a child process; none where it saved none."""
        return cls(
            tuple(result.get("files read", ())), tuple(result.get("folders of packages", ()))
        )

    def states(self) -> dict[str, str]:
        """Return the state of each file and folder by path: of a file a hash of its content, of a
        large one size and time of the last change, of a folder a hash of the names and versions of
        the packages in it, and "absent" for what is not there."""
        return {path: _state_of(path) for path in (*self.files, *self.folders)}


def are_as_they_were(states: Mapping[str, str]) -> bool:
    """Return whether all files and folders are in the states that `Reads.states` returned."""
    return all(state == _state_of(path) for path, state in states.items())


def _state_of(path: str) -> str:
    """Return a text that changes with a file or folder: a hash of the file's content, of a large or
    special one its size and time, of a folder a hash of the names and versions of the packages in
    it; `_ABSENT` for what is not there or cannot be read."""
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            names = sorted(name for name in os.listdir(path) if name.endswith(_OF_PACKAGES))
            return _hash("\0".join(names).encode())
        if status.st_size > _LARGE or not stat.S_ISREG(status.st_mode):
            return f"{status.st_size} {status.st_mtime_ns}"
        return _hash(Path(path).read_bytes())
    except OSError:
        return _ABSENT


def _hash(content: bytes) -> str:
    """Return a hash of some bytes as text."""
    return hashlib.blake2b(content, digest_size=20).hexdigest()
