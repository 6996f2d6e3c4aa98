"""Stop code that runs for too long."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def limited(seconds: float, error: BaseException, *, processor: bool = False) -> Iterator[None]:
    """Raise an error in what runs for longer than some seconds, of the clock or of processor time.

    Nothing is limited where the system has no such timer (Windows). Only the main thread can be limited.
    """
    if not hasattr(signal, "setitimer"):
        yield
        return
    timer, number = (
        (signal.ITIMER_VIRTUAL, signal.SIGVTALRM) if processor else (signal.ITIMER_REAL, signal.SIGALRM)
    )

    def stop(*_: object) -> None:
        raise error

    before = signal.signal(number, stop)
    signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, before)
