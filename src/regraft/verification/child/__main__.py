"""Entry of the launcher and of the children that it forks: `python -m regraft.verification.child`.

Standard input takes a request for a child on each line, as JSON: its folder, working folder,
environment, containment, and modules to import before it starts. Standard output answers with the
child's process id, and with its exit status once it has ended.
"""

from __future__ import annotations

import contextlib
import functools
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

from regraft.verification.descendants import MARK, adopt_orphans, end_descendants
from regraft.verification.resource_limits import limit_process
from regraft.verification.types import INTERNAL, REFUSED, TRACER

if sys.platform == "linux":  # here, so that not every child imports it
    from regraft.verification.namespaces import continue_in_namespaces, reason_of
    from regraft.verification.readable_files import interpreter_paths

_FORKS = sys.platform == "linux"  # elsewhere libraries may not be used after a fork
_IDLE_SECONDS = 60.0
# where compilers store what they made, by the variable that names the folder
_STORES = {
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "CUDA_CACHE_PATH": "cuda",
}


def main() -> None:
    """Fork a child for each request on standard input until standard input is closed or brings
    nothing for `_IDLE_SECONDS`. Write the child's process id, then after its end its exit status,
    and end the processes that the child started and orphaned.

    From the second request on, children that trace find PyTorch prepared for it. Where the system
    cannot fork, answer the first request in this process, which then ends.
    """
    adopt_orphans()
    requests, answers = _take_standard_streams()
    is_first = True
    while _becomes_readable(requests) and (line := requests.readline()):
        request = json.loads(line)
        _import(request["imports"])
        if not is_first and TRACER in request["imports"]:
            _prepare_tracing()
        is_first = False
        gc.freeze()  # else every child visits, and thereby copies, all that was imported
        read_end, write_end = os.pipe()
        pid = os.fork() if _FORKS else 0
        if pid == 0:
            os.close(read_end)
            if not _FORKS:
                _write_number(answers, os.getpid())
            os.close(answers)
            _become_child(request, requests, write_end)
        os.close(write_end)
        _write_number(answers, _read_process_id(read_end) or pid)
        status = os.waitpid(pid, 0)[1]
        end_descendants(os.getpid())  # orphans of the child are this process's children
        _write_number(answers, os.waitstatus_to_exitcode(status))


def _take_standard_streams() -> tuple[IO[bytes], int]:
    """Return the stream of requests and the file descriptor for answers, both duplicates. Replace
    standard input by an empty file and standard output by standard error for the rest of this
    process, so that no further code reads or writes there."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return requests, answers


def _import(modules: list[str]) -> None:
    """Import modules that do not depend on the code under test; `sys.path` lacks the working
    folder.

    A module that fails to import is skipped silently: a child that needs it imports it again, and
    fails for the same reason.
    """
    for module in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(module)


@functools.cache
def _prepare_tracing() -> None:
    """Trace an example in this process, at the first call only. Where that fails, children trace
    from the start, and say for what reason."""
    with contextlib.suppress(Exception):
        importlib.import_module("regraft.verification.child.tracing_warm_up").trace_example()


def _becomes_readable(requests: IO[bytes]) -> bool:
    """Return whether `requests` becomes readable within `_IDLE_SECONDS`, if only by its end; True
    without a wait where the system cannot fork."""
    return not _FORKS or bool(select.select([requests], [], [], _IDLE_SECONDS)[0])


def _write_number(answers: int, number: int) -> None:
    """Write a number on a line to the file descriptor `answers`; do nothing where the parent that
    reads it has ended."""
    with contextlib.suppress(BrokenPipeError):
        os.write(answers, f"{number}\n".encode())


def _read_process_id(read_end: int) -> int:
    """Return the process id that a child writes to a pipe where another process goes on for it; 0
    where the child closes the pipe, or ends, without writing one."""
    with os.fdopen(read_end, "rb") as stream:
        line = stream.readline()
    return int(line) if line.endswith(b"\n") else 0


def _become_child(request: dict[str, Any], requests: IO[bytes], announcements: int) -> NoReturn:
    """Turn this process into the child of a request, answer the request, and end the process with
    the status of `_answer`, without running exit handlers.

    The process gets namespaces of its own where the request says so (another process then goes on,
    whose id is written to the pipe `announcements`), a session of its own where it may fork, the
    request's working folder, environment and limits, and appends its output to the files `stdout`
    and `stderr` of the request's folder. It is killed as soon as its parent ends.
    """
    folder = Path(request["folder"])
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.environ.clear()
    os.environ.update(request["environment"])
    if request["namespaces"]:
        _enter_namespaces(request, folder, announcements)
    os.close(announcements)
    if _FORKS:
        os.setsid()
    os.chdir(request["working folder"])
    sys.path.insert(0, "")
    threading.Thread(target=_end_with_parent, args=(requests.fileno(),), daemon=True).start()
    limit_process(request["file bytes"], request["memory limit"])
    adopt_orphans()
    status = _answer(folder)
    sys.stdout.flush()
    sys.stderr.flush()
    end_descendants(os.getpid())
    os._exit(status)  # threads and exit handlers of model code may not hold us up


def _enter_namespaces(request: dict[str, Any], folder: Path, announcements: int) -> None:
    """Go on in namespaces, in a new process whose id is written to the pipe `announcements`; where
    the system refuses, write the reason to standard error and end with REFUSED.

    The request's files, this interpreter's and those that the package finders of its environment
    name are readable. What compilers store goes to the request's folder.
    """
    readable = [*map(Path, request["readable"]), *interpreter_paths()]
    try:
        continue_in_namespaces(
            folder, readable, lambda pid: _write_number(announcements, pid), request["threads"]
        )
    except OSError as error:
        print(reason_of(error), file=sys.stderr, flush=True)
        os._exit(REFUSED)
    for variable, name in _STORES.items():
        os.environ[variable] = str(folder / "stores" / name)
    os.environ["TMPDIR"] = "/tmp"


def _end_with_parent(requests: int) -> None:
    """Wait until the stream `requests` (a file descriptor) is closed, which only the end of the
    parent does while a child runs; then end all processes that this process has started, and kill
    this process with its group. Never returns."""
    os.read(requests, 1)
    try:
        end_descendants(os.getpid(), os.environ.get(MARK, ""))
    finally:
        if hasattr(os, "killpg"):
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os._exit(1)


def _answer(folder: Path) -> int:
    """Answer `request.json` in `folder` by writing `result.json` there; return the exit status of
    this process: 0, or INTERNAL where the verifier itself raises, whose traceback is printed.

    A request with the key "class" is described, any other request is verified. Without torch or
    NumPy the result is the fatal error "package", with status 0.
    """
    request: dict[str, Any] = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    missing = [name for name in ("torch", "numpy") if importlib.util.find_spec(name) is None]
    if missing:
        result = json.dumps({"fatal": {"what": "package", "names": missing}})
        (folder / "result.json").write_text(result, encoding="utf-8")
        return 0
    try:
        if "class" in request:
            from regraft.verification.child.class_description import describe

            describe(folder, request)
        else:
            from regraft.verification.child.answer_request import run

            run(folder, request)
    except Exception:  # noqa: BLE001 - errors of models are caught where models run; this is a failure of ours
        traceback.print_exc()
        return INTERNAL
    return 0


if __name__ == "__main__":
    main()
