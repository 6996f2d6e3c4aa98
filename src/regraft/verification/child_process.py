"""Run the child process that executes both versions, and end it whatever the code under
test does."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from regraft.verification.child_environment import child_environment
from regraft.verification.containment import Containment
from regraft.verification.descendants import end_descendants
from regraft.verification.launcher import OLDEST, TOO_OLD, Launcher, launcher_for
from regraft.verification.resource_limits import Limits
from regraft.verification.triton_interpreter import interprets_kernels
from regraft.verification.types import INTERNAL, REFUSED, VerifyError

HANG_SECONDS = 20.0
STUCK_SECONDS = 60.0  # for which the original may sleep in one step
INTERPRETED_SECONDS = 300.0  # where Triton interprets kernels on the CPU, row by row
HANG_FACTOR = 50.0
_ASLEEP = 50.0  # a process sleeps if the clock ran this many times as long as the process worked
_POLLS = 3  # times in a row that it has to be seen asleep, too: others may have the processor
_PATIENCE = 10.0  # seconds for a launcher to collect what a killed child leaves behind
_TAIL = 65536
# called with a step of the child
Watch = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a child: `how` is "finished", "crashed", "limit", "time limit" or "hang" (one step
    far slower than the original's, or one in which the original sleeps).

    `seconds` is the time of the step for a hang, else of the run; `step` the last entry of the
    journal, empty where there is none; `stderr` the end of the error output; `excess` says as a
    clause which limit of `Limits` ended the child.
    """

    how: str
    code: int
    seconds: float
    step: Mapping[str, Any]
    stderr: str
    excess: str = ""

    @property
    def cause(self) -> str:
        """Return, as a clause for the end of a message, why the child ended: "it did not return
        within 5 s", "it had 600 processes (limit 256)", or "the process ended with exit status
        1"."""
        if self.excess:
            return self.excess
        if self.how == "hang":
            return f"it did not return within {self.seconds:.0f} s"
        if self.how == "time limit":
            return "the time limit was reached"
        if self.code < 0:
            with contextlib.suppress(ValueError):
                return f"the process was killed by {signal.Signals(-self.code).name}"
        if self.code == INTERNAL:
            return "Regraft itself failed"
        return f"the process ended with exit status {self.code}"

    @property
    def last_line(self) -> str:
        """Return the last line of the error output of a child that crashed, in parentheses behind a
        space, at most 200 characters; "" for none, and for other children."""
        lines = self.stderr.strip().splitlines() if self.how == "crashed" else []
        return f" ({lines[-1][:200]})" if lines else ""


class _Ending(NamedTuple):
    """How a child ended ("finished", "crashed", "limit", "time limit" or "hang"), its exit status,
    and the exceeded limit as a clause, else ""."""

    how: str
    code: int
    excess: str = ""


def run_child(
    python: str,
    folder: Path,
    time_limit: float,
    memory_limit: int | None,
    imports: Sequence[str] = (),
    watch: Watch | None = None,
    containment: Containment = Containment(),
) -> Exit:
    """Run a child on the request in `folder`; on return it has ended, and its process group with
    it.

    On Linux all processes that it started have ended, too, but, without namespaces, for a process
    that left the group with an environment of its own and outlived a launcher that crashed. Raises
    VerifyError where `python` cannot be started or is too old, and where namespaces fail.
    `time_limit` is in seconds on the clock, `memory_limit` in bytes of address space, None for no
    limit. `imports` are modules that the child will import in any case. `watch` is called about
    twice a second with the last step.
    """
    started = time.monotonic()
    environment = child_environment(os.environ, containment.passed_names)
    (folder / "stderr").touch()
    with (
        (folder / "stderr").open("ab") as errors,
        launcher_for(python, environment, errors) as launcher,
    ):
        pid = launcher.start_child(folder, environment, memory_limit, imports, containment)
        if pid is None:
            ending = _Ending("crashed", launcher.end())
        else:
            limits, deadline = containment.limits, started + time_limit
            ending = _wait(launcher, pid, folder, deadline, watch, limits)
    if ending.code == TOO_OLD and pid is None:
        raise VerifyError(
            "the Python interpreter is older than " + ".".join(map(str, OLDEST)), file=python
        )
    step, stderr = last_step(folder), _tail(folder / "stderr")
    if ending.code == REFUSED and not step:
        raise VerifyError(f"{stderr.strip()}; --sandbox off runs the code without a sandbox")
    seconds = time.monotonic() - started
    if ending.how == "hang":
        seconds = time.time() - float(step.get("time", time.time()))
    return Exit(ending.how, ending.code, seconds, step, stderr, ending.excess)


def last_step(folder: Path) -> Mapping[str, Any]:
    """Return the last complete entry of the child's journal, or an empty mapping."""
    lines = [line for line in _tail(folder / "journal.jsonl").splitlines() if line.endswith("}")]
    for line in reversed(lines):
        with contextlib.suppress(ValueError):
            step: Mapping[str, Any] = json.loads(line)
            return step
    return {}


def _wait(
    launcher: Launcher,
    pid: int,
    folder: Path,
    deadline: float,
    watch: Watch | None,
    limits: Limits,
) -> _Ending:
    """Wait for the end of the child, or end it where it hangs, exceeds a limit or the time is over.

    It is "finished" only with status 0 and a `result.json` in the folder, else "crashed", "limit",
    "time limit" or "hang". The child is also ended where waiting raises, on Ctrl-C for example.
    """
    sleeping_polls = 0
    while True:
        try:
            code = launcher.wait(min(0.5, max(0.01, deadline - time.monotonic())))
        except TimeoutError:
            work = _processor_time(pid)
            sleeping_polls = sleeping_polls + 1 if _is_asleep(pid) else 0
            step = last_step(folder)
            if watch is not None:
                watch(step)
            if excess := limits.excess(launcher.pid):
                return _Ending("limit", _kill(launcher, pid), excess)
            is_asleep = sleeping_polls >= _POLLS
            if _hangs(step, work, is_asleep=is_asleep) or (is_asleep and _is_stuck(step, work)):
                return _Ending("hang", _kill(launcher, pid))
            if time.monotonic() >= deadline:
                is_hang = _hangs(step, work, patience=0.1)
                return _Ending("hang" if is_hang else "time limit", _kill(launcher, pid))
            continue
        except BaseException:
            _kill(launcher, pid)
            raise
        if code == 0 and (folder / "result.json").exists():
            return _Ending("finished", code)
        return _Ending("crashed", code, limits.cause_of_signal(-code))


def _hangs(
    step: Mapping[str, Any], work: float | None, patience: float = 1.0, *, is_asleep: bool = True
) -> bool:
    """Return whether the changed version has been at one step much longer than the original was;
    False while the original runs.

    `work` is the child's processor time so far in seconds, None where the system does not tell. On
    a busy machine the clock says little: the step has to have worked for as long, or to sleep, and
    `is_asleep` is False for a child that waits for a processor. Without `work` the clock decides,
    but not before the whole limit. `patience` scales the limit; below 1, a child that sleeps does
    not count as hanging, and without `work` none does. A child sleeps that worked for much less
    than the time that passed.
    """
    if step.get("side") != "changed":
        return False
    shortest = INTERPRETED_SECONDS if interprets_kernels() else HANG_SECONDS
    limit = max(shortest, HANG_FACTOR * float(step.get("original_seconds", 0.0))) * patience
    elapsed = time.time() - float(step["time"])
    if elapsed <= limit:
        return False
    if work is None:
        return patience >= 1.0
    worked = work - float(step["work"])
    sleeps = is_asleep and patience >= 1.0 and worked < elapsed / _ASLEEP
    return worked > limit or sleeps


def _is_stuck(step: Mapping[str, Any], work: float | None) -> bool:
    """Return whether a child that sleeps has worked for next to nothing of more than
    `STUCK_SECONDS` in a step that is not the changed version's: a broken heap may leave the
    original waiting for a lock. `work` is as for `_hangs`; without it, no child is stuck."""
    if work is None or step.get("side") not in ("original", "mutant", "truth"):
        return False
    elapsed = time.time() - float(step["time"])
    return elapsed > STUCK_SECONDS and work - float(step["work"]) < elapsed / _ASLEEP


def _processor_time(pid: int) -> float | None:
    """Return the processor time of a process in seconds; None on systems that do not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))


def _is_asleep(pid: int) -> bool:
    """Return whether all threads of a process wait for anything but a processor or a disk; False on
    systems that do not tell."""
    try:
        states = [
            stat.read_text("utf-8").rpartition(")")[2].split()[0]
            for stat in Path(f"/proc/{pid}/task").glob("*/stat")
        ]
    except OSError:
        return False
    return bool(states) and set(states) == {"S"}


def _kill(launcher: Launcher, pid: int) -> int:
    """End the child with its whole process group and the descendants that left it, and the launcher
    where the child does not end; return the exit status, that of a child that had ended by itself
    included."""
    with contextlib.suppress(TimeoutError):
        return launcher.wait(0.0)
    if hasattr(signal, "SIGSTOP"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # a stopped child starts no process, and stays the parent of orphans
            os.kill(pid, signal.SIGSTOP)
        end_descendants(pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGTERM)
    try:
        return launcher.wait(_PATIENCE)
    except TimeoutError:
        return launcher.end()


def _tail(path: Path) -> str:
    """Return the end of a file that a child wrote as text, at most _TAIL bytes; "" where there is
    no file."""
    return read_regular_file(path, _TAIL).decode("utf-8", "replace")


def read_regular_file(path: Path, most_bytes: int | None = None) -> bytes:
    """Return the content of a file, or its last bytes; empty where there is none, and for what code
    under test may have put in its place: a link, or a pipe, which would never end."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
    except OSError:  # it is not there, or a link
        return b""
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b""
        if most_bytes is not None:
            file.seek(max(0, status.st_size - most_bytes))
        return file.read(most_bytes)
