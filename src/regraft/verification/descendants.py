"""End the processes that a process has started, also those that have left its process group.

On Linux a process is found by its parent, or by a mark in the environment that it was started with.
Elsewhere no process is found, and only process groups end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

MARK = "REGRAFT_VERIFY_RUN"
_PROC = Path("/proc")
_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
_ROUNDS = 100
_PAUSE = 0.01


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parents end; do nothing on systems
    other than Linux, or where the C library has no `prctl`."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):  # a C library without prctl
            ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)


def end_descendants(pid: int, mark: str = "") -> None:
    """Kill the processes below `pid`, not `pid` itself, and those that were started with this mark
    (none for ""), until there are none, or for a second.

    A process that was started with another environment is not found once `pid` has ended.
    """
    for _ in range(_ROUNDS):
        processes = _stop_processes(pid, mark)
        if not processes:
            return
        _send(signal.SIGKILL, processes)
        time.sleep(_PAUSE)


def _stop_processes(pid: int, mark: str) -> set[int]:
    """Stop the processes that `end_descendants` kills, until no further one appears, and return
    them: processes that start each other faster than they are killed would never end."""
    stopped: set[int] = set()
    for _ in range(_ROUNDS):
        processes = descendants(pid)
        processes |= _marked_processes(mark) - {pid, os.getpid()} if mark else set()
        if processes <= stopped:
            break
        _send(signal.SIGSTOP, processes - stopped)
        stopped |= processes
    return processes


def _send(signal_number: int, processes: Iterable[int]) -> None:
    """Send a signal to processes; those that have ended or that others own are left out."""
    for number in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(number, signal_number)


def descendants(pid: int) -> set[int]:
    """Return the process ids of the descendants of a process that have not ended."""
    children: dict[int, list[int]] = {}
    ended = set()
    for entry in _process_folders():
        fields = _read(entry / "stat").rpartition(b")")[2].split()
        if len(fields) > 1:
            number = int(entry.name)
            children.setdefault(int(fields[1]), []).append(number)
            ended |= {number} if fields[0] in (b"Z", b"X") else set()
    below: set[int] = set()
    pending = [pid]
    while pending:
        new_children = set(children.get(pending.pop(), ())) - below
        below |= new_children
        pending += new_children
    return below - ended


def _marked_processes(mark: str) -> set[int]:
    """Return the ids of the processes that were started with a mark in their environment."""
    assignment = f"{MARK}={mark}".encode()
    return {
        int(entry.name)
        for entry in _process_folders()
        if assignment in _read(entry / "environ").split(b"\0")
    }


def _process_folders() -> list[Path]:
    """Return the folder of each process below `/proc`; empty where the system has no `/proc`."""
    try:
        return [entry for entry in _PROC.iterdir() if entry.name.isdigit()]
    except OSError:  # there is no such folder on this system
        return []


def _read(path: Path) -> bytes:
    """Return the bytes of a file of a process, empty where the process has ended or belongs to
    another user."""
    try:
        return path.read_bytes()
    except OSError:  # the process has ended, or is another user's
        return b""
