"""A context manager that raises an error in code that runs for too long."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def limit_time(seconds: float, error: BaseException, *, processor: bool = False) -> Iterator[None]:
    """Raise `error` in the body once it runs for longer than `seconds`, of the clock or, with
    `processor`, of processor time; the former signal handler is restored.

    Nothing is limited where the system has no such timer (Windows). Only the main thread can be
    limited. A limit inside another by the same clock ends the outer limit.
    """
    if not hasattr(signal, "setitimer"):
        yield
        return
    timer, signal_number = (
        (signal.ITIMER_VIRTUAL, signal.SIGVTALRM)
        if processor
        else (signal.ITIMER_REAL, signal.SIGALRM)
    )

    def stop(*_: object) -> None:
        """Raise the error of the limit."""
        raise error

    old_handler = signal.signal(signal_number, stop)
    signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(signal_number, old_handler)
