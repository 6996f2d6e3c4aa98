"""End what a process has started, also what has left its process group.

On Linux a process is found by its parent, or by a mark in the environment that it was started with. Elsewhere nothing
is found, and only process groups end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

MARK = "REGRAFT_VERIFY_RUN"
_PROC = Path("/proc")
_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
_ROUNDS = 100
_PAUSE = 0.01


def adopt_orphans() -> None:
    """Let what this process starts stay below it when the processes in between end; Linux only."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):  # a C library without prctl
            ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)


def end_descendants(pid: int, mark: str = "") -> None:
    """Kill the processes below `pid`, not itself, and those that were started with this mark, until there are none.

    One that was started with another environment is not found once `pid` has ended.
    """
    for _ in range(_ROUNDS):
        family = _below(pid) | (_marked(mark) - {pid, os.getpid()} if mark else set())
        if not family:
            return
        for number in family:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)
        time.sleep(_PAUSE)


def _below(pid: int) -> set[int]:
    """Descendants of a process that have not ended."""
    children: dict[int, list[int]] = {}
    ended = set()
    for entry in _entries():
        fields = _read(entry / "stat").rpartition(b")")[2].split()
        if len(fields) > 1:
            number = int(entry.name)
            children.setdefault(int(fields[1]), []).append(number)
            ended |= {number} if fields[0] in (b"Z", b"X") else set()
    found: set[int] = set()
    pending = [pid]
    while pending:
        new = set(children.get(pending.pop(), ())) - found
        found |= new
        pending += new
    return found - ended


def _marked(mark: str) -> set[int]:
    """Processes that were started with a mark in their environment."""
    wanted = f"{MARK}={mark}".encode()
    return {int(entry.name) for entry in _entries() if wanted in _read(entry / "environ").split(b"\0")}


def _entries() -> list[Path]:
    try:
        return [entry for entry in _PROC.iterdir() if entry.name.isdigit()]
    except OSError:  # there is no such folder on this system
        return []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process has ended since, or is another user's
        return b""
