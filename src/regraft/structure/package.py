"""The files around a file: where the classes and functions are that it imports from its own package.

A file without a package sees its neighbours in the same directory. Nothing is imported; what cannot be found or read
stays unknown, as every other package does.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from regraft.source import text
from regraft.source.cache_key import digest_of
from regraft.source.names import Names
from regraft.source.text import SourceError, SourceFile

MAX_OPEN = 32  # parsed files that are kept for the next file of the same package
MAX_STEPS = 6  # imports from file to file until a definition
ABSENT = ""


class Named(Protocol):
    """What is made of a file has its module-level names."""

    @property
    def names(self) -> Names: ...


T = TypeVar("T", bound=Named)
_open: OrderedDict[tuple[Path, int, int], tuple[str, Any]] = OrderedDict()  # digest, and what was made of the file


class Package(Generic[T]):
    """What one file can reach by its imports; `followed` remembers whose text that depends on.

    make  what to make of a file that was found, and of its package's dotted name; kept for other files
    """

    def __init__(self, path: str, package: str, make: Callable[[SourceFile, str], T]) -> None:
        self.name = package
        self.make = make
        self.followed: dict[str, str] = {}  # digests by path; ABSENT where there was no such file
        self.exists = Path(path).is_file()
        self.file = Path(path).resolve()
        self.root = self.file.parents[package.count(".") + 1] if package else self.file.parent

    def own(self, qualified: str) -> bool:
        """Whether a qualified name may be one of the package's."""
        first = qualified.lstrip(".").partition(".")[0]
        if not self.exists or not first:
            return False
        if self.name:
            return first == self.name.partition(".")[0] and not qualified.startswith(".")
        return first != "torch" and first not in sys.stdlib_module_names and not qualified.startswith("..")

    def locate(self, qualified: str) -> tuple[T, str] | None:
        """The file that defines a qualified name, followed through imports from file to file, and its name there."""
        pending = [qualified]
        for _ in range(MAX_STEPS):
            if not pending:
                return None
            parts = pending.pop(0).lstrip(".").split(".")
            if not self.own(".".join(parts)) or len(parts) < 2:
                continue
            module, name = self._module(parts[:-1]), parts[-1]
            if module is None:
                continue
            names = module.names
            if name in names.definitions:
                return module, name
            if name in names.qualified:
                pending.append(names.qualified[name])
            elif name not in names.bound:
                pending += [f"{star}.{name}" for star in names.stars]
        return None

    def _module(self, parts: list[str]) -> T | None:
        base = self.root.joinpath(*parts)
        for path in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
            found = self._read(path)
            if found is not None:
                return found
        return None

    def _read(self, path: Path) -> T | None:
        try:
            status = path.stat()
        except OSError:
            self.followed[str(path)] = ABSENT
            return None
        key = (path, status.st_mtime_ns, status.st_size)
        entry = _open.get(key)
        if entry is None:
            source = text.read(path)
            package = ".".join(path.parent.relative_to(self.root).parts) if self.name else ""
            if isinstance(source, SourceError):
                entry = (digest(path), None)
            else:
                entry = (digest_of(source.data), self.make(source, package))
            _open[key] = entry
            while len(_open) > MAX_OPEN:
                _open.popitem(last=False)
        _open.move_to_end(key)
        self.followed[str(path)] = entry[0]
        found: T | None = entry[1]
        return found


def is_class_name(qualified: str) -> bool:
    """Whether a name is a class's by convention; whether it really is would cost reading its file."""
    return qualified.rpartition(".")[2][:1].isupper()


def digest(path: Path) -> str:
    """Of a file's content; ABSENT when there is none."""
    try:
        return digest_of(path.read_bytes())
    except OSError:
        return ABSENT
