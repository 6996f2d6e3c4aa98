"""Move the running program into Linux namespaces of its own: without network, without sight of
other processes, with the file system of `contained_file_system.contain_files`.

Three processes are needed. The caller stays outside and waits. The first process of a process
namespace collects orphans and ends the whole namespace with itself; signals of the namespace do not
reach it. The second goes on with the caller's work.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import resource
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

from regraft.verification.contained_file_system import contain_files

_FIRST_PROGRAM = "/bin/cat"  # reads until its input ends, and does nothing else
_NEW_MOUNTS, _NEW_IPC, _NEW_USER, _NEW_PROCESSES, _NEW_NETWORK = (
    0x00020000,
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
_DROP_BOUNDING, _NO_NEW_PRIVILEGES, _AMBIENT, _CLEAR_AMBIENT = 24, 38, 47, 4  # prctl(2)
_CAPABILITY_VERSION = 0x20080522
_READ_FILES_OF_OTHERS = 1  # CAP_DAC_OVERRIDE
_INTERFACE_FLAGS, _SET_INTERFACE_FLAGS, _UP = 0x8913, 0x8914, 1  # ioctls of netdevice(7)


def continue_in_namespaces(
    folder: Path, readable: Iterable[Path], report: Callable[[int], None], max_tasks: int
) -> None:
    """Fork, and return in the new process only, which is in namespaces of its own.

    The calling process never returns: it calls `report` with the new one's id, as its own namespace
    numbers it, and ends as the new one ends, with all processes of the namespace. `folder` may be
    written, `readable` read; at most `max_tasks` threads run at a time where user namespaces count
    them. The new process has `/` as its working folder (the calling one as well, also after an
    error), no network but loopback, and no capabilities that it can do without. Raises OSError, in
    the calling process or in the new one, where the system refuses.
    """
    os.chdir("/")  # no process may stand in a folder that is hidden later
    has_user_namespace = _unshare()
    read_end, write_end = os.pipe()
    first = _start_first_process(read_end)
    os.close(read_end)
    pid = os.fork()
    if pid:
        report(pid)
        _exit_like_child(pid, first, write_end)
    os.close(write_end)
    _start_loopback()
    contain_files(folder, readable)
    if has_user_namespace:
        _limit_tasks(max_tasks)
    _drop_capabilities(keeps_access=not has_user_namespace)


def _unshare() -> bool:
    """Leave the namespaces of mounts, IPC, processes and network; return whether this took a user
    namespace, in which this process keeps its user and group.

    The administrator of a system needs none, and reads files of other users without. Raises OSError
    where the system refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    flags = _NEW_MOUNTS | _NEW_IPC | _NEW_PROCESSES | _NEW_NETWORK
    if libc.unshare(flags) == 0:
        return False
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(flags | _NEW_USER) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"unshare: {os.strerror(number)}")
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    return True


def _start_first_process(read_end: int) -> int:
    """Start `cat` as the first process of the new process namespace and return its id. It reads
    `read_end` of a pipe, so it ends when the other end is closed. It is no copy of this large
    process, which would take longer to make."""
    handler = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # inherited: the system collects them
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        return os.posix_spawn(
            _FIRST_PROGRAM,
            [_FIRST_PROGRAM],
            {},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, read_end, 0),
                (os.POSIX_SPAWN_DUP2, null, 1),
                (os.POSIX_SPAWN_DUP2, null, 2),
            ],
        )
    finally:
        os.close(null)
        signal.signal(signal.SIGCHLD, handler)


def _exit_like_child(pid: int, first: int, write_end: int) -> NoReturn:
    """Wait for the end of the process `pid`, end its namespace, whose first process is `first`, by
    closing `write_end`, and end this process with the same exit status or by the same signal."""
    status = os.waitpid(pid, 0)[1]
    os.close(write_end)
    os.waitpid(first, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _start_loopback() -> None:
    """Start the loopback interface of a new network namespace, which reaches nothing outside."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = fcntl.ioctl(control, _INTERFACE_FLAGS, struct.pack("16sh22x", b"lo", 0))
        (flags,) = struct.unpack("16xh22x", request)
        fcntl.ioctl(control, _SET_INTERFACE_FLAGS, struct.pack("16sh22x", b"lo", flags | _UP))


def _limit_tasks(number: int) -> None:
    """Limit the threads of this user in this user namespace; do nothing before Linux 5.14, which
    counts all threads of the user."""
    version = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
    if version < (5, 14):
        return
    resource.setrlimit(resource.RLIMIT_NPROC, (number, number))


def _drop_capabilities(*, keeps_access: bool) -> None:
    """Give up all capabilities for good, also for programs that this process starts, but for access
    to files of other users where it `keeps_access`. Raises OSError where the system refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    retained = _READ_FILES_OF_OTHERS if keeps_access else -1
    libc.prctl(_AMBIENT, _CLEAR_AMBIENT, 0, 0, 0)
    number = 0
    while number == retained or libc.prctl(_DROP_BOUNDING, number, 0, 0, 0) == 0:
        number += 1
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    bits = 1 << retained if keeps_access else 0
    if libc.capset(header, struct.pack("=6I", bits, bits, 0, 0, 0, 0)) != 0:
        raise OSError(ctypes.get_errno(), "capset")
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def probe() -> NoReturn:
    """Try `continue_in_namespaces`, and end this process: with status 0 where the system has them,
    else with 1 and the reason on standard error."""
    try:
        continue_in_namespaces(Path(tempfile.gettempdir()), (), lambda _: None, 64)
    except OSError as error:
        print(reason_of(error), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def reason_of(error: OSError) -> str:
    """Return the sentence that says why namespaces were refused, for an error of
    `continue_in_namespaces`."""
    if error.errno in (errno.EPERM, errno.ENOSPC) and str(error.strerror).startswith("unshare"):
        return "user namespaces are not permitted here"
    return f"namespaces are refused: {error.strerror}"
