"""Entry of the launcher and of the children that it forks: `python -m regraft.verify.child`.

Standard input takes a request for a child on each line, as JSON: its folder, working folder,
environment, memory limit in bytes, and modules to import before it starts. Standard output answers
with the child's process id, and with its exit status once it has ended.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import IO, Any, NoReturn

from regraft.verify.descendants import MARK, adopt_orphans, end_descendants
from regraft.verify.types import INTERNAL

_FORKS = sys.platform == "linux"  # elsewhere libraries may not be used after a fork
_IDLE_SECONDS = 60.0


def main() -> None:
    """Start a child for each request until standard input is closed; where the system cannot fork,
    answer the first request in this process."""
    adopt_orphans()
    requests, answers = _take_standard_streams()
    while _comes_soon(requests) and (line := requests.readline()):
        request = json.loads(line)
        _import(request["imports"])
        gc.freeze()  # else every child visits, and thereby copies, all that was imported
        pid = os.fork() if _FORKS else 0
        if pid == 0:
            if not _FORKS:
                _report(answers, os.getpid())
            os.close(answers)
            _become_child(request, requests)
        _report(answers, pid)
        status = os.waitpid(pid, 0)[1]
        end_descendants(os.getpid())  # orphans of the child are this process's children
        _report(answers, os.waitstatus_to_exitcode(status))


def _take_standard_streams() -> tuple[IO[bytes], int]:
    """Return the streams of requests and answers, and replace standard input by an empty file and
    standard output by standard error, so that nothing else reads or writes there."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return requests, answers


def _import(modules: list[str]) -> None:
    """Import modules that do not depend on the code under test, and nothing from the working
    folder.

    A child that lacks one of them imports it again, and fails for the same reason.
    """
    path = sys.path[:]
    sys.path[:] = [folder for folder in path if folder]
    for module in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    sys.path[:] = path


def _comes_soon(requests: IO[bytes]) -> bool:
    """Return whether there is something to read within a minute, if only the end of the stream."""
    return not _FORKS or bool(select.select([requests], [], [], _IDLE_SECONDS)[0])


def _report(answers: int, number: int) -> None:
    """Write a number on a line; a parent that has ended needs no answer."""
    with contextlib.suppress(BrokenPipeError):
        os.write(answers, f"{number}\n".encode())


def _become_child(request: dict[str, Any], requests: IO[bytes]) -> NoReturn:
    """Answer a request in this process, in a session with output files, a working folder and an
    environment of its own, and end the process; it ends early when its parent does."""
    if _FORKS:
        os.setsid()
    folder = Path(request["folder"])
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.chdir(request["working folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    threading.Thread(target=_follow_parent, args=(requests.fileno(),), daemon=True).start()
    if request["memory limit"] is not None:
        _limit_memory(request["memory limit"])
    adopt_orphans()
    status = _answer(folder)
    sys.stdout.flush()
    sys.stderr.flush()
    end_descendants(os.getpid())
    os._exit(status)  # threads and exit handlers of model code may not hold us up


def _follow_parent(requests: int) -> None:
    """Wait until the stream of requests is closed, which only the end of the parent does while a
    child runs; then end this process and what it has started."""
    os.read(requests, 1)
    try:
        end_descendants(os.getpid(), os.environ.get(MARK, ""))
    finally:
        if hasattr(os, "killpg"):
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os._exit(1)


def _answer(folder: Path) -> int:
    """Answer the request in `folder`; return the exit status of this process.

    Without torch the result is the fatal error "torch".
    """
    request: dict[str, Any] = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    if importlib.util.find_spec("torch") is None:
        (folder / "result.json").write_text(
            json.dumps({"fatal": {"what": "torch"}}), encoding="utf-8"
        )
        return 0
    try:
        if "class" in request:
            from regraft.verify.child.describe import describe

            describe(folder, request)
        else:
            from regraft.verify.child.run import run

            run(folder, request)
    except Exception:  # noqa: BLE001 - errors of models are caught where models run; this is a failure of ours
        traceback.print_exc()
        return INTERNAL
    return 0


def _limit_memory(limit: int) -> None:
    """Limit the address space of this process, in bytes, where the system can."""
    try:
        import resource
    except ImportError:  # no such limits on this platform
        return
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    main()
