"""Note which files the code under test reads: a stored verdict holds only while they stay as they
are."""

from __future__ import annotations

import functools
import os
import site
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# places whose files belong to the system, or to no disk
_SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/run")
_REGRAFT = str(Path(__file__).resolve().parents[2])
_opened_paths: set[str] = set()


def start_noting_reads() -> None:
    """Note from now on every file that this process opens to read; the audit hook for it stays for
    the rest of the process."""
    sys.addaudithook(_note_opening)


def _note_opening(event: str, arguments: tuple[Any, ...]) -> None:
    """Note the path of an audit event that opens a file to read."""
    if event == "open":
        path, _, flags = arguments
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
        if isinstance(path, str | bytes) and not writes:
            _opened_paths.add(os.fsdecode(path))


def files_read(folder: Path, package: str) -> tuple[str, ...]:
    """Return, sorted, the absolute paths of the files that were opened to read since
    `start_noting_reads`, and of the imported modules. Files that are not there are among them;
    those in `folder`, of the system, of Regraft and of installed packages are not, except for the
    modules of `package`, the top-level package under test ("" for none)."""
    return _files_read(str(folder), package, len(_opened_paths), len(sys.modules))


@functools.lru_cache(maxsize=1)
def _files_read(folder: str, package: str, opened: int, imported: int) -> tuple[str, ...]:
    """Return the result of `files_read`; `opened` and `imported` count what it depends on, so that
    it is computed only where that has grown."""
    imported_files = list(_imported())
    own_modules = {file for name, file in imported_files if name.partition(".")[0] == package}
    paths = {os.path.abspath(path) for path in _opened_paths}
    paths |= {file for _, file in imported_files}
    library = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
    places = (*_SYSTEM, _REGRAFT, folder, *library, *folders_of_packages())
    return tuple(
        path
        for path in sorted(paths)
        if not path.endswith((".pyc", ".pyo"))
        and (path in own_modules or not _is_in(path, places))
        and not os.path.isdir(path)
    )


@functools.cache
def folders_of_packages() -> tuple[str, ...]:
    """Return the folders in which packages are installed for this interpreter."""
    names = ("purelib", "platlib")
    paths = (*map(sysconfig.get_path, names), *site.getsitepackages(), site.getusersitepackages())
    return tuple(path for path in dict.fromkeys(paths) if os.path.isdir(path))


def _imported() -> Iterator[tuple[str, str]]:
    """Yield the name and the absolute path of the file of each imported module that has one."""
    for name, module in tuple(sys.modules.items()):
        origin = getattr(getattr(module, "__spec__", None), "origin", None)
        if isinstance(origin, str) and os.path.isabs(origin):
            yield name, origin


def _is_in(path: str, places: tuple[str, ...]) -> bool:
    """Return whether a path is below one of some folders."""
    return any(path.startswith(place + os.sep) for place in places)
