"""Terminals: whether a stream is one, and what long work does right now, on stderr."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import TextIO

_TERMINAL_SECONDS = 1.0
_LOG_SECONDS = 30.0
_CLEAR = "\r\x1b[K"  # to the start of the line, and delete it

Watch = Callable[[str], None]  # called with what is done


def ignore(_: str) -> None:
    """Do nothing with what is done."""


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal; None stands for one that is closed."""
    return stream is not None and stream.isatty()


class Progress:
    """Says on stderr what a command or a function does, for how long, and how long it takes at
    most: on a terminal in a line that changes every second, elsewhere in a new line every 30 s.

    It speaks from the start to the end of a `with` block, from a thread of its own.
    """

    def __init__(self) -> None:
        self._on_terminal = is_terminal(sys.stderr)
        self._interval = _TERMINAL_SECONDS if self._on_terminal else _LOG_SECONDS
        self._activity = ""
        self._part = ""
        self._count: tuple[int, int] | None = None
        self._started = self._activity_started = time.monotonic()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._speak_in_turn, daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._clear()

    def begin(self, activity: str) -> None:
        """Say what is done from now on."""
        self._activity, self._part, self._count = activity, "", None
        self._activity_started = time.monotonic()
        if self._on_terminal:
            self._speak()

    def say_part(self, part: str) -> None:
        """Note which part of the activity it is at; "" changes nothing."""
        self._part = part or self._part

    def count(self, measured: int, total: int) -> None:
        """Note how many pairs of how many at most are measured."""
        self._count = (measured, total)

    def print_lines(self, lines: Iterable[str]) -> None:
        """Print lines on stdout, and the changing line below them."""
        with self._lock:
            self._clear()
            for line in lines:
                print(line, flush=True)
        if self._on_terminal:
            self._speak()

    def note(self, line: str) -> None:
        """Print a line on stderr, and the changing line below it."""
        with self._lock:
            self._clear()
            _write(f"{line}\n")
        if self._on_terminal:
            self._speak()

    def sentence(self) -> str:
        """Return the activity with its part, how far it is, and the time."""
        now = time.monotonic()
        activity = f"{self._activity}: {self._part}" if self._part else self._activity
        parts = [activity, f"{now - self._started:.0f} s"]
        if self._count is not None:
            measured, total = self._count
            parts.insert(1, f"{measured} of at most {total} pairs")
            left = (now - self._activity_started) * (total - measured) / max(measured, 1)
            parts += [f"this takes {left:.0f} s more at most"] if measured else []
        return ", ".join(parts)

    def _speak_in_turn(self) -> None:
        """Speak until the end, once in each interval."""
        while not self._ended.wait(self._interval):
            self._speak()

    def _speak(self) -> None:
        """Write the sentence."""
        with self._lock:
            if self._activity and not self._ended.is_set():
                prefix = _CLEAR if self._on_terminal else ""
                _write(prefix + self.sentence() + ("" if self._on_terminal else "\n"))

    def _clear(self) -> None:
        """Delete the changing line."""
        if self._on_terminal:
            _write(_CLEAR)


def _write(text: str) -> None:
    """Write a text on stderr at once, where there is one."""
    if sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()
