"""The files of a package as one file reaches them: definitions of the classes and functions that it
imports.

A file without a package reaches the files in its directory. No code is imported; a file that cannot
be found or read stays unknown, as do all files of other packages.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from regraft.source import text
from regraft.source.cache_key import digest_of
from regraft.source.qualified_names import Names
from regraft.source.text import SourceError, SourceFile

MAX_CACHED = 32  # parsed files that stay in the cache for other files of the package
MAX_STEPS = 6  # names that are followed until a definition is found
ABSENT = ""


class Named(Protocol):
    """The type of a parsed file, which has the module-level names."""

    @property
    def names(self) -> Names: ...


T = TypeVar("T", bound=Named)
# the digest and the parsed file, by path, modification time and size
_cache: OrderedDict[tuple[Path, int, int], tuple[str, Any]] = OrderedDict()


class Package(Generic[T]):
    """The files of a package that one file can reach by its imports.

    make      parses a file, given its source and its package's dotted name; results are cached for
              other files
    followed  the digests of the files that the answers depend on, by path; ABSENT for a file that
              does not exist
    """

    def __init__(self, path: str, package: str, make: Callable[[SourceFile, str], T]) -> None:
        self.name = package
        self.make = make
        self.followed: dict[str, str] = {}
        self.exists = Path(path).is_file()
        self.file = Path(path).resolve()
        self.root = self.file.parents[package.count(".") + 1] if package else self.file.parent

    def may_define(self, qualified: str) -> bool:
        """Return whether a qualified name may be defined in the package."""
        first = qualified.lstrip(".").partition(".")[0]
        if not self.exists or not first:
            return False
        if self.name:
            return first == self.name.partition(".")[0] and not qualified.startswith(".")
        return (
            first != "torch"
            and first not in sys.stdlib_module_names
            and not qualified.startswith("..")
        )

    def locate(self, qualified: str) -> tuple[T, str] | None:
        """Return the file that defines a qualified name, and the name there, following imports;
        None if not found."""
        pending = [qualified]
        for _ in range(MAX_STEPS):
            if not pending:
                return None
            parts = pending.pop(0).lstrip(".").split(".")
            if not self.may_define(".".join(parts)) or len(parts) < 2:
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
        """Return the parsed file of a module, given the parts of its qualified name; None when
        there is none."""
        base = self.root.joinpath(*parts)
        for path in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
            module = self._read(path)
            if module is not None:
                return module
        return None

    def _read(self, path: Path) -> T | None:
        """Return a parsed file, from the cache if possible; None when it is missing or cannot be
        parsed."""
        try:
            status = path.stat()
        except OSError:
            self.followed[str(path)] = ABSENT
            return None
        key = (path, status.st_mtime_ns, status.st_size)
        entry = _cache.get(key)
        if entry is None:
            source = text.read(path)
            package = ".".join(path.parent.relative_to(self.root).parts) if self.name else ""
            if isinstance(source, SourceError):
                entry = (digest(path), None)
            else:
                entry = (digest_of(source.data), self.make(source, package))
            _cache[key] = entry
            while len(_cache) > MAX_CACHED:
                _cache.popitem(last=False)
        _cache.move_to_end(key)
        self.followed[str(path)] = entry[0]
        module: T | None = entry[1]
        return module


def is_class_name(qualified: str) -> bool:
    """Return whether a name is a class's by convention; to know for certain, its file would have to
    be read."""
    return qualified.rpartition(".")[2][:1].isupper()


def digest(path: Path) -> str:
    """Return the digest of a file's content; ABSENT when the file cannot be read."""
    try:
        return digest_of(path.read_bytes())
    except OSError:
        return ABSENT
