"""Processes that work for a server: it reads what they print while they run, and ends them when
nobody waits for them any more."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_PARENT = Path(__file__).resolve().parents[2]  # the folder of this package
# the working folder may hold modules that shadow others
_START = """
import sys
sys.path[:] = filter(None, sys.path)
place, watches_caller, *sys.argv = sys.argv[1:]
sys.path.append(place)
if watches_caller:
    from regraft.server.processes import end_with_caller
    end_with_caller()
import runpy
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
_LONGEST_LINE = 2**28  # bytes; a result is one line of JSON
_PATIENCE = 5.0  # seconds for a process to end the processes that it has started

OnLine = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended: its exit status, and what it wrote."""

    code: int
    output: str
    errors: str


async def run_module(
    arguments: Sequence[str],
    folder: Path,
    text: str | None = None,
    on_output: OnLine | None = None,
    on_error: OnLine | None = None,
) -> Ended:
    """Run a module of Regraft, with arguments, in a folder, and return how it ended.

    Each line that it writes is passed on while it runs. `text` is its standard input; without it
    standard input stays open as long as somebody waits for the process, which ends with it. A
    process whose caller is cancelled is interrupted, then killed.
    """
    process = await asyncio.create_subprocess_exec(
        *_command(arguments, watches_caller=text is None),
        cwd=folder,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=_LONGEST_LINE,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1"},
        start_new_session=True,
    )
    assert process.stdin and process.stdout and process.stderr
    try:
        if text is not None:
            process.stdin.write(text.encode("utf-8", "surrogatepass"))
            with contextlib.suppress(ConnectionError):
                await process.stdin.drain()
            process.stdin.close()
        output, errors, code = await asyncio.gather(
            _lines(process.stdout, on_output), _lines(process.stderr, on_error), process.wait()
        )
        return Ended(code, output, errors)
    finally:
        if process.returncode is None:
            await asyncio.shield(_end(process))


def _command(arguments: Sequence[str], *, watches_caller: bool) -> list[str]:
    """Return the command that runs a module with this interpreter and this package."""
    return [sys.executable, "-c", _START, str(_PARENT), "1" * watches_caller, *arguments]


def end_with_caller() -> None:
    """Interrupt this process when its standard input ends: nobody waits for it any more."""
    threading.Thread(target=_wait_for_end_of_input, daemon=True).start()


def _wait_for_end_of_input() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4096):  # not sys.stdin, whose lock a process needs to end
            pass
    _thread.interrupt_main()


async def _lines(stream: asyncio.StreamReader, on_line: OnLine | None) -> str:
    """Return all that a stream has, and pass each line on as it comes."""
    lines: list[str] = []
    while line := await stream.readline():
        lines.append(line.decode("utf-8", "replace"))
        if on_line is not None:
            on_line(lines[-1].rstrip("\n"))
    return "".join(lines)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Interrupt a process, and kill it where it does not end."""
    with contextlib.suppress(ProcessLookupError):
        if os.name == "nt":
            process.terminate()
        else:
            process.send_signal(signal.SIGINT)
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), _PATIENCE)
    except asyncio.TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
