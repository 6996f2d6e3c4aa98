"""Limits of what the processes of a verification use: set in the child where the system enforces
them for each process, and watched by the parent for all of them together.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from regraft.verification.descendants import descendants

FILE_BYTES = 256 * 1024**2
PROCESSES = 256
THREADS = 1024
_MEMORY_SHARE = 0.8  # of what the machine or the control group has
_GROUPS = Path("/sys/fs/cgroup")
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for all processes of a verification together, and for each of their files.

    `memory` is resident memory in bytes, None for a share of what this machine, or its control
    group, has.
    """

    file_bytes: int = FILE_BYTES
    processes: int = PROCESSES
    threads: int = THREADS
    memory: int | None = None

    @property
    def memory_bytes(self) -> int | None:
        """The limit of resident memory in bytes; None where the system tells no size."""
        if self.memory is not None:
            return self.memory
        sizes = list(_memory_sizes())
        return int(min(sizes) * _MEMORY_SHARE) if sizes else None

    def excess(self, pid: int) -> str:
        """Return as a clause which limit the processes below `pid` exceed: "it had 600 processes
        (limit 256)"; "" where they keep to all, or where the system does not tell."""
        usages = [usage for number in _below(pid) if (usage := _usage(number)) is not None]
        if len(usages) > self.processes:
            return f"it had {len(usages)} processes (limit {self.processes})"
        threads = sum(usage.threads for usage in usages)
        if threads > self.threads:
            return f"it had {threads} threads (limit {self.threads})"
        limit = self.memory_bytes
        if limit is None or sum(usage.memory for usage in usages) <= limit:
            return ""
        memory = sum(_proportional_memory(usage) for usage in usages)
        if memory <= limit:
            return ""
        return f"it used {_in_gibibytes(memory)} GiB of memory (limit {_in_gibibytes(limit)})"

    def cause_of_signal(self, number: int) -> str:
        """Return as a clause the limit that the system enforces by a signal; "" for others."""
        if number != getattr(signal, "SIGXFSZ", None):
            return ""
        return f"it wrote a file over {self.file_bytes // 1024**2} MiB"


def limit_process(file_bytes: int, address_space: int | None) -> None:
    """Limit the size of the files that this process and those that it starts write, and their
    address space in bytes, and write no core files; do nothing on a system without such limits.

    A file that grows too large ends its process by a signal, which Python ignores otherwise.
    """
    try:
        import resource
    except ImportError:  # no such limits on this platform
        return
    _set_limit(resource.RLIMIT_CORE, 0)
    _set_limit(resource.RLIMIT_FSIZE, file_bytes)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    if address_space is not None:
        _set_limit(resource.RLIMIT_AS, address_space)


def _set_limit(resource_number: int, limit: int) -> None:
    """Set a limit of this process, soft and hard, to `limit`, or to the hard limit where that is
    lower."""
    import resource

    hard = resource.getrlimit(resource_number)[1]
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource_number, (limit, limit))


@dataclass(frozen=True, slots=True)
class _Usage:
    """What a process uses: `memory` are resident bytes, of which it may share some."""

    pid: int
    threads: int
    memory: int


def _below(pid: int) -> set[int]:
    """Return the ids of the processes below a process, read from the lists of children where the
    system has these: on a busy machine the list of all processes is long."""
    if not (_PROC / str(pid) / "task" / str(pid) / "children").exists():
        return descendants(pid)
    below: set[int] = set()
    pending = [pid]
    while pending:
        children = _children_of(pending.pop()) - below
        below |= children
        pending += children
    return below


def _children_of(pid: int) -> set[int]:
    """Return the ids of the processes that the threads of a process started; none where it has
    ended."""
    children: set[int] = set()
    try:
        paths = list((_PROC / str(pid) / "task").glob("*/children"))
    except OSError:  # it ended while its threads were listed
        return children
    for path in paths:
        with contextlib.suppress(OSError):  # the thread has ended
            children.update(map(int, path.read_text("utf-8").split()))
    return children


def _usage(pid: int) -> _Usage | None:
    """Return what a process uses; None where it has ended, even if its parent has not collected it
    yet."""
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    if fields[0] in (b"Z", b"X"):
        return None
    return _Usage(pid, int(fields[17]), int(fields[21]) * os.sysconf("SC_PAGE_SIZE"))


def _proportional_memory(usage: _Usage) -> int:
    """Return the resident memory of a process, each shared part divided by those who share it; all
    of it where the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (_PROC / str(usage.pid) / "smaps_rollup").read_text("utf-8").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return usage.memory


def _memory_sizes() -> Iterator[int]:
    """Yield the memory of this machine, and the limits of the control groups of this process."""
    with contextlib.suppress(OSError, ValueError):
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in _group_files():
        with contextlib.suppress(OSError, ValueError):  # "max" is no number
            yield int(path.read_text("utf-8"))


def _group_files() -> Iterator[Path]:
    """Yield the paths of the files that may state a limit of memory for this process: of each of
    its control groups and the groups around it, in either version of control groups; nothing where
    the system does not tell."""
    try:
        lines = (_PROC / "self" / "cgroup").read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if not controllers:
            top, name = _GROUPS, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = _GROUPS / "memory", "memory.limit_in_bytes"
        else:
            continue
        folder = top / group.lstrip("/")
        groups = (parent for parent in (folder, *folder.parents) if parent.is_relative_to(top))
        yield from (parent / name for parent in groups)


def _in_gibibytes(number: int) -> str:
    """Return a number of bytes in GiB, with a digit behind the point where it is small."""
    size = number / 1024**3
    return f"{size:.1f}" if size < 10 else f"{size:.0f}"
