"""The file system that a contained process sees: all of it read-only, less the folders of users and
of running services. Linux only.

A process needs the capability CAP_SYS_ADMIN and a mount namespace of its own for this.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

# tmpfs: files there take memory, of which no process is the owner
_TEMPORARY_BYTES = 1024**3  # of /tmp, and of shared memory
_HOME_BYTES = 64 * 1024**2
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "kfd", "dri", "dxg")
_DEVICE_PATTERNS = ("nvidia*",)
_STREAMS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
# folders with what belongs to users, and with the sockets of services
_PRIVATE = ("/home", "/root", "/tmp", "/run")
# numbers of system calls, equal on all architectures
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_CURRENT_FOLDER = -100  # AT_FDCWD
_RECURSIVE = 0x8000  # AT_RECURSIVE
_CLONE = 1  # OPEN_TREE_CLONE
_FROM_DESCRIPTOR = 4  # MOVE_MOUNT_F_EMPTY_PATH
_READ_ONLY, _NO_SETUID, _NO_DEVICES, _NO_PROGRAMS = 1, 2, 4, 8  # MS_* and MOUNT_ATTR_*
_REC, _PRIVATE_MOUNTS = 0x4000, 0x40000  # MS_REC, MS_PRIVATE


def contain_files(folder: Path, readable: Iterable[Path]) -> None:
    """Make all mounted file systems read-only but for `folder`, replace the private folders by
    empty ones that may be written, except for what of `readable` lies in them, and show only
    devices and processes that are harmless.

    Raises OSError where the system forbids it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _mount(libc, None, "/", None, _REC | _PRIVATE_MOUNTS)
    writable_tree = _open_tree(libc, folder)
    _set_read_only(libc)
    private = tuple(_private_folders())
    trees = [(path, _open_tree(libc, path)) for path in _shown_paths(readable, private)]
    devices = [(path, _open_tree(libc, path)) for path in _device_paths()]
    for path in private:
        size = _TEMPORARY_BYTES if path == Path("/tmp") else _HOME_BYTES
        _mount_temporary(libc, path, size, "1777")
    for path, tree in trees:
        _attach(libc, tree, path)
    _mount_temporary(libc, Path("/dev"), _TEMPORARY_BYTES, "755")
    for path, tree in devices:
        _attach(libc, tree, path)
    for name, target in _STREAMS.items():
        Path("/dev", name).symlink_to(target)
    Path("/dev/shm").mkdir(mode=0o1777)
    _mount(libc, "proc", "/proc", "proc", _READ_ONLY | _NO_SETUID | _NO_DEVICES | _NO_PROGRAMS)
    _attach(libc, writable_tree, folder)


def _private_folders() -> Iterator[Path]:
    """Yield the folders whose content is hidden: /home, /root, /tmp, /run and the home folder,
    without those that lie inside another."""
    home = os.path.expanduser("~")
    paths = {Path(name).resolve() for name in (*_PRIVATE, home) if os.path.isdir(name)}
    paths -= {Path("/")}
    yield from (path for path in sorted(paths) if not paths.intersection(path.parents))


def _shown_paths(readable: Iterable[Path], private: tuple[Path, ...]) -> list[Path]:
    """Return the paths below private folders that are shown, none inside another.

    Of a folder that contains private ones, or is one, the Python files and packages are shown.
    """
    paths: set[Path] = set()
    for path in {*readable, *(path.resolve() for path in readable)}:
        if any(path == folder or path in folder.parents for folder in private):
            paths |= set(_modules_in(path))
        elif any(folder in path.parents for folder in private) and os.path.exists(path):
            paths.add(path)
    return [path for path in sorted(paths) if not paths.intersection(path.parents)]


def _modules_in(folder: Path) -> Iterator[Path]:
    """Yield the Python files and packages in a folder; nothing for a folder that cannot be read."""
    try:
        entries = list(folder.iterdir())
    except OSError:  # it is not there, or another user's
        return
    for entry in entries:
        if entry.suffix == ".py" or os.path.exists(entry / "__init__.py"):
            yield entry


def _device_paths() -> Iterator[Path]:
    """Yield the devices that exist and that the contained process sees."""
    for name in _DEVICES:
        if (path := Path("/dev", name)).exists():
            yield path
    for pattern in _DEVICE_PATTERNS:
        yield from Path("/dev").glob(pattern)


def _mount_temporary(libc: ctypes.CDLL, path: Path, size: int, mode: str) -> None:
    """Put an empty file system over a folder; the files in it lie in memory."""
    options = f"size={size},mode={mode}"
    _mount(libc, "tmpfs", str(path), "tmpfs", _NO_SETUID | _NO_DEVICES, options)


def _mount(
    libc: ctypes.CDLL,
    source: str | None,
    target: str,
    kind: str | None,
    flags: int,
    options: str = "",
) -> None:
    """Call mount(2) and raise OSError where it fails."""
    encoded = [None if text is None else text.encode() for text in (source, kind)]
    _check(
        libc.mount(
            encoded[0], target.encode(), encoded[1], ctypes.c_ulong(flags), options.encode()
        ),
        f"mount {target}",
    )


def _set_read_only(libc: ctypes.CDLL) -> None:
    """Make all mounts read-only, and ignore setuid bits in them."""
    attributes = struct.pack("=4Q", _READ_ONLY | _NO_SETUID, 0, 0, 0)
    result = libc.syscall(
        *_numbers(_MOUNT_SETATTR, _CURRENT_FOLDER),
        b"/",
        *_numbers(_RECURSIVE),
        attributes,
        *_numbers(len(attributes)),
    )
    _check(result, "mount_setattr /")


def _open_tree(libc: ctypes.CDLL, path: Path) -> int:
    """Return a file descriptor of a copy of the mounts at a path. Raises OSError where the system
    refuses it."""
    flags = _CLONE | _RECURSIVE | os.O_CLOEXEC
    result = libc.syscall(
        *_numbers(_OPEN_TREE, _CURRENT_FOLDER), os.fsencode(path), *_numbers(flags)
    )
    return _check(result, f"open_tree {path}")


def _attach(libc: ctypes.CDLL, tree: int, path: Path) -> None:
    """Mount a copy that `_open_tree` returned at a path, which is created where it is not there,
    and close its descriptor."""
    if not os.path.lexists(path):
        if os.path.isdir(f"/proc/self/fd/{tree}"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    result = libc.syscall(
        *_numbers(_MOVE_MOUNT, tree),
        b"",
        *_numbers(_CURRENT_FOLDER),
        os.fsencode(path),
        *_numbers(_FROM_DESCRIPTOR),
    )
    _check(result, f"move_mount {path}")
    os.close(tree)


def _numbers(*values: int) -> Iterator[ctypes.c_long]:
    """Yield arguments of a system call: in a variadic call ctypes would pass 32 bits."""
    return map(ctypes.c_long, values)


def _check(result: int, call: str) -> int:
    """Return the result of a system call; raises OSError where it failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result
