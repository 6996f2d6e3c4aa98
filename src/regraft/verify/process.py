"""Run the child process that executes both versions, and end it whatever the code under
test does."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regraft.verify.descendants import MARK, end_descendants
from regraft.verify.types import VerifyError

HANG_SECONDS = 20.0
INTERPRETED_SECONDS = 300.0  # where Triton interprets kernels on the CPU, row by row
HANG_FACTOR = 50.0
_ASLEEP = 50.0  # a process sleeps if the clock ran this many times as long as the process worked
_TAIL = 65536
_PACKAGE = Path(__file__).resolve().parents[1]
_OLDEST = (3, 10)
_TOO_OLD = 3

# The child's first program. It imports this package from its own folder, whose neighbours (the
# parent's packages) must not shadow those of the child's interpreter. Old interpreters have to be
# able to parse it. Standard input is a pipe that only the parent holds: when the parent ends,
# however it does, so does the child. Code under test reads nothing there.
_START = f"""
import sys
if sys.version_info < {_OLDEST}:
    sys.exit({_TOO_OLD})
import importlib.util, os, runpy, signal, threading
pipe = os.dup(0)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
def follow():
    os.read(pipe, 1)
    try:
        from regraft.verify.descendants import MARK, end_descendants
        end_descendants(os.getpid(), os.environ.get(MARK, ""))
    finally:
        if hasattr(os, "killpg"):
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os._exit(1)
threading.Thread(target=follow, daemon=True).start()
place = sys.argv.pop(1)
spec = importlib.util.spec_from_file_location("regraft", place + "/__init__.py", submodule_search_locations=[place])
package = sys.modules["regraft"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
runpy.run_module("regraft.verify.child", run_name="__main__", alter_sys=True)
"""  # noqa: E501


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a child: `how` is "finished", "crashed", "time limit" or "hang" (one step far
    slower than the original's).

    `seconds` is the time of the step for a hang, else of the run; `step` the last entry of the
    journal, empty where there is none; `stderr` the end of the error output.
    """

    how: str
    code: int
    seconds: float
    step: Mapping[str, Any]
    stderr: str

    @property
    def cause(self) -> str:
        """Return the cause of the end in words."""
        if self.how == "hang":
            return f"it did not return within {self.seconds:.0f} s"
        if self.how == "time limit":
            return "the time limit was reached"
        if self.code < 0:
            with contextlib.suppress(ValueError):
                return f"the process was killed by {signal.Signals(-self.code).name}"
        return f"the process ended with exit status {self.code}"


def run_child(python: str, folder: Path, time_limit: float, memory_limit: int | None) -> Exit:
    """Run the child on the request in `folder`; on return it has ended, and its process group with
    it.

    On Linux all processes that it started have ended, too, but for a process that left the group
    with an environment of its own and outlived a child that crashed. Raises VerifyError where
    `python` cannot be started or is too old. `time_limit` is in seconds on the clock,
    `memory_limit` in bytes of address space, None for no limit.
    """
    started, mark = time.monotonic(), secrets.token_hex(16)
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        child = _start(python, folder, memory_limit, mark, out, err)
        try:
            how = _wait(child, folder, started + time_limit)
        finally:
            _kill(child, mark)
    if child.returncode == _TOO_OLD and not (folder / "journal.jsonl").exists():
        raise VerifyError(
            "the Python interpreter is older than " + ".".join(map(str, _OLDEST)), file=python
        )
    step = last_step(folder)
    seconds = time.monotonic() - started
    if how == "hang":
        seconds = time.time() - float(step.get("time", time.time()))
    return Exit(how, child.returncode or 0, seconds, step, _tail(folder / "stderr"))


def last_step(folder: Path) -> Mapping[str, Any]:
    """Return the last complete entry of the child's journal, or an empty mapping."""
    lines = [line for line in _tail(folder / "journal.jsonl").splitlines() if line.endswith("}")]
    for line in reversed(lines):
        with contextlib.suppress(ValueError):
            step: Mapping[str, Any] = json.loads(line)
            return step
    return {}


def _start(
    python: str, folder: Path, memory_limit: int | None, mark: str, out: Any, err: Any
) -> subprocess.Popen[bytes]:
    """Start the child's interpreter with its output in two files; raises VerifyError where it does
    not start."""
    command = [python, "-c", _START, str(_PACKAGE), str(folder)]
    if memory_limit is not None:
        command.append(str(memory_limit))
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
            env={**_environment(), MARK: mark},
            start_new_session=True,
        )
    except OSError as error:
        raise VerifyError(
            f"cannot start the Python interpreter: {error.strerror}", file=python
        ) from error


def _environment() -> dict[str, str]:
    """Return the child's environment: one thread, no downloads by the libraries of Hugging Face,
    fixed hashing, and every kernel that runs here.

    Nothing else keeps the code under test from the network.
    """
    overrides = {
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "TOKENIZERS_PARALLELISM": "false",
        "REGRAFT_KERNELS": "always",  # also for inputs so small that kernels do not pay
    }
    return {**os.environ, **overrides}


def _wait(child: subprocess.Popen[bytes], folder: Path, deadline: float) -> str:
    """Wait for the end of the child; return "finished", "crashed", "time limit" or "hang"."""
    while True:
        try:
            code = child.wait(timeout=min(0.5, max(0.01, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            work = _work(child.pid)
            if _hangs(last_step(folder), work):
                return "hang"
            if time.monotonic() >= deadline:
                return "hang" if _hangs(last_step(folder), work, patience=0.1) else "time limit"
            continue
        return "finished" if code == 0 and (folder / "result.json").exists() else "crashed"


def _hangs(step: Mapping[str, Any], work: float | None, patience: float = 1.0) -> bool:
    """Return whether the changed version has been at one step much longer than the original was;
    False while the original runs.

    `work` is the child's processor time so far in seconds, None where the system does not tell. On
    a busy machine the clock says little: the step has to have worked for as long, or to sleep.
    Without `work` the clock decides, but not before the whole limit. `patience` scales the limit.
    """
    if step.get("side") != "changed":
        return False
    shortest = INTERPRETED_SECONDS if os.environ.get("TRITON_INTERPRET") == "1" else HANG_SECONDS
    limit = max(shortest, HANG_FACTOR * float(step.get("original_seconds", 0.0))) * patience
    elapsed = time.time() - float(step["time"])
    if elapsed <= limit:
        return False
    if work is None:
        return patience >= 1.0
    worked = work - float(step["work"])
    return worked > limit or (patience >= 1.0 and worked < elapsed / _ASLEEP)


def _work(pid: int) -> float | None:
    """Return the processor time of a process in seconds; None on systems that do not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))


def _kill(child: subprocess.Popen[bytes], mark: str) -> None:
    """End the child's whole process group, and the descendants that left it."""
    if child.returncode is None and hasattr(signal, "SIGSTOP"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # a stopped child starts no process, and stays the parent of orphans
            os.kill(child.pid, signal.SIGSTOP)
        end_descendants(child.pid, mark)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
    child.wait()
    end_descendants(child.pid, mark)
    if child.stdin is not None:
        child.stdin.close()


def _tail(path: Path) -> str:
    """Return the end of a file as text, at most _TAIL bytes; "" where there is no file."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - _TAIL))
        return file.read().decode("utf-8", "replace")
