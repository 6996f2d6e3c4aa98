"""Start children from a process that has imported PyTorch and the verifier already.

Each child needs both, and importing them takes longer than most comparisons. On Linux a launcher
imports them once and forks for every child; it never imports code under test. Elsewhere each child
is a launcher of its own that answers one request.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from regraft.verification.containment import Containment
from regraft.verification.descendants import MARK, end_descendants
from regraft.verification.types import VerifyError

OLDEST = (3, 10)
TOO_OLD = 3
_PACKAGE = Path(__file__).resolve().parents[1]
# Variables that an interpreter, a loader or a library reads when it starts begin with these words.
_READ_AT_START = (
    *("PYTHON", "LD_", "DYLD_", "OMP_", "MKL_", "KMP_", "OPENBLAS_"),
    *("TORCH", "PYTORCH", "TRITON", "CUDA", "NVIDIA", "HIP", "ROCR"),
)
_PATIENCE = 1.0  # seconds in which a launcher ends by itself
_REUSE_SECONDS = 30.0  # half the time after which a launcher without work ends, so that none is met

# The launcher's first program. It imports this package from its own folder, whose neighbours (the
# parent's packages) must not shadow those of the launcher's interpreter. Old interpreters have to
# be able to parse it.
_START = f"""
import sys
if sys.version_info < {OLDEST}:
    sys.exit({TOO_OLD})
sys.path[:] = filter(None, sys.path)  # not the working folder, which has code under test
import importlib.util, runpy
place = sys.argv.pop(1)
spec = importlib.util.spec_from_file_location(
    "regraft", place + "/__init__.py", submodule_search_locations=[place]
)
package = sys.modules["regraft"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
runpy.run_module("regraft.verification.child", run_name="__main__", alter_sys=True)
"""


class Launcher:
    """A process that starts children one after another; raises VerifyError where `python` cannot
    be started.

    It ends when its parent does, or after a minute without a request. `errors` receives what it
    writes to standard error before its first child has started.
    """

    def __init__(self, python: str, environment: Mapping[str, str], errors: IO[bytes]) -> None:
        """Start the process, and a thread that reads its answers. Raises VerifyError where `python`
        cannot be started."""
        self.key = _key(python, environment)
        self.idle_since = time.monotonic()
        self._mark = secrets.token_hex(16)
        try:
            self._process = subprocess.Popen(
                [python, "-c", _START, str(_PACKAGE)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**environment, MARK: self._mark},
                start_new_session=True,
            )
        except OSError as error:
            reason = f"cannot start the Python interpreter: {error.strerror}"
            raise VerifyError(reason, file=python) from error
        self._answers: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        threading.Thread(target=self._read_answers, daemon=True).start()

    def start_child(
        self,
        folder: Path,
        environment: Mapping[str, str],
        memory_limit: int | None,
        imports: Sequence[str],
        containment: Containment,
    ) -> int | None:
        """Start a child on the request in `folder`; return its process id, None where the launcher
        has ended before. The launcher imports the modules `imports` first."""
        request = {
            "folder": str(folder),
            "memory limit": memory_limit,
            "working folder": str(Path.cwd()),
            "environment": {**environment, MARK: self._mark},
            "imports": list(imports),
            "namespaces": containment.uses_namespaces,
            "readable": [str(path) for path in containment.readable],
            "file bytes": containment.limits.file_bytes,
            "threads": containment.limits.threads,
        }
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        return self._answers.get()

    def wait(self, seconds: float) -> int:
        """Return the exit status of the child, negative for a signal; raises TimeoutError after
        `seconds`.

        Where the launcher has ended, call `end` and return the launcher's own status.
        """
        try:
            status = self._answers.get(timeout=seconds)
        except queue.Empty as error:
            raise TimeoutError from error
        return self.end() if status is None else status

    def end(self) -> int:
        """Close the launcher's input, end it after `_PATIENCE` seconds at the latest, with all
        processes that it has started, and return its exit status."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # a request that nobody has read
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE)
        end_descendants(self._process.pid, self._mark)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        return self._process.wait()

    @property
    def pid(self) -> int:
        """The launcher's process id."""
        return self._process.pid

    def is_running(self) -> bool:
        """Return whether the launcher could start another child."""
        return self._process.poll() is None

    def _read_answers(self) -> None:
        """Put the launcher's answers, one number a line (the id of a new child, later its exit
        status), into the queue, then None once the launcher has ended."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(int(line))
        self._answers.put(None)


_idle: list[Launcher] = []
_lock = threading.Lock()


@contextmanager
def launcher_for(
    python: str, environment: Mapping[str, str], errors: IO[bytes]
) -> Iterator[Launcher]:
    """Yield a launcher that nobody uses, a new process where there is none for this interpreter and
    environment.

    Afterwards the launcher waits for the next user; an error in the `with` block ends the process.
    """
    launcher = _take_idle(_key(python, environment)) or Launcher(python, environment, errors)
    try:
        yield launcher
    except BaseException:
        launcher.end()
        raise
    if launcher.is_running():
        launcher.idle_since = time.monotonic()
        with _lock:
            _idle.append(launcher)


def _take_idle(key: tuple[object, ...]) -> Launcher | None:
    """Return the launcher of this key that has waited for the shortest time, and take it out of the
    list; None where there is none that will not end soon. Launchers that have ended are dropped."""
    oldest = time.monotonic() - _REUSE_SECONDS
    with _lock:
        _idle[:] = [launcher for launcher in _idle if launcher.is_running()]
        usable = [entry for entry in _idle if entry.key == key and entry.idle_since > oldest]
        if usable:
            _idle.remove(usable[-1])
    return usable[-1] if usable else None


def _key(python: str, environment: Mapping[str, str]) -> tuple[object, ...]:
    """Return what a launcher serves, so that equal keys may share it: this process, the
    interpreter, and the variables that are read when it starts."""
    variables = sorted(
        assignment for assignment in environment.items() if assignment[0].startswith(_READ_AT_START)
    )
    return os.getpid(), python, tuple(variables)


@atexit.register
def _end_idle_launchers() -> None:
    """End the idle launchers that this process started, when it exits."""
    with _lock:
        for launcher in _idle:
            if launcher.key[0] == os.getpid():
                launcher.end()
        _idle.clear()
