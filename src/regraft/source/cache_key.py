"""The place of Regraft's caches, and the key of everything that all entries depend on."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from regraft.source.text import write_atomically

PACKAGE = Path(__file__).parent.parent
_ENDINGS = (".py", ".json", ".lark")
# Folders that import those which compute what is kept, and are not imported by them.
_USERS = frozenset({"benchmarking", "cli", "live", "report", "server", "splitting"})
_VERIFIERS = frozenset({"execution", "verification"})
_BLOCK = 2**24  # bytes of a file that are read at a time


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the directory of the caches; None when the user has no place for them."""
    if environment.get("REGRAFT_CACHE_DIR"):
        return Path(environment["REGRAFT_CACHE_DIR"])
    variable = "LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME"
    if os.path.isabs(environment.get(variable, "")):
        return Path(environment[variable], "regraft")
    try:
        return Path.home() / ".cache" / "regraft"
    except RuntimeError:
        return None


def own_key(*, of_scans: bool = False) -> hashlib.blake2b:
    """Return a hash of what all entries depend on: Python and Regraft's own files.

    of_scans  leave out the files that verify, which scans do not import
    """
    return _key_of_package(PACKAGE, _USERS | _VERIFIERS if of_scans else _USERS).copy()


@functools.cache
def _key_of_package(package: Path, excluded: frozenset[str]) -> hashlib.blake2b:
    """Return a hash of Python's version and the files of a package without the `excluded` folders;
    they are read once in a process."""
    key = hashlib.blake2b(f"{sys.implementation.cache_tag} {sys.version}".encode(), digest_size=20)
    paths: list[str] = []
    for folder, folders, files in os.walk(package):
        folders[:] = [name for name in folders if name not in excluded]
        paths += (os.path.join(folder, name) for name in files if name.endswith(_ENDINGS))
    add_files(key, map(Path, sorted(paths)))
    return key


def add_files(key: hashlib.blake2b, paths: Iterable[Path]) -> None:
    """Add the names and contents of files to a key."""
    for path in paths:
        data = path.read_bytes()
        key.update(f"\0{path.name}\0{len(data)}\0".encode())
        key.update(data)


def write_entry(path: Path, content: bytes) -> None:
    """Write what is kept behind its check sum; raise OSError where the directory cannot be
    written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, _checksum(content) + b"\n" + content, 0o600)


def entry_content(entry: bytes) -> bytes | None:
    """Return what `write_entry` was given; None where the entry is damaged."""
    stored_checksum, _, content = entry.partition(b"\n")
    return content if stored_checksum == _checksum(content) else None


def _checksum(content: bytes) -> bytes:
    return digest_of(content).encode()


def digest_of(data: bytes) -> str:
    """Return the BLAKE2b digest of bytes, in hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def digest_of_file(path: Path) -> str:
    """Return `digest_of` of a file's content, which need not fit into memory."""
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
