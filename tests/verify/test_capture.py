"""Capturing a model as one graph must not hold up its verification."""

from __future__ import annotations

import signal
import time

import pytest

pytest.importorskip("torch")

from regraft.verify.child.capture import LATE, limited


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no such timer")
def test_what_takes_too_long_is_stopped() -> None:
    started = time.monotonic()
    with pytest.raises(TimeoutError, match=LATE), limited(0.2):
        time.sleep(5)
    assert time.monotonic() - started < 3
    with limited(0.2):
        pass
    time.sleep(0.3)  # nothing is left behind
