"""Test that capturing a model as one graph does not hold up its verification."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

pytest.importorskip("torch")

STOPPED = """
import time
from regraft.verification.child.time_limit import limit_time

started = time.monotonic()
try:
    with limit_time(0.2, TimeoutError("late")):
        time.sleep(5)
except TimeoutError as error:
    assert str(error) == "late"
else:
    raise AssertionError("not stopped")
assert time.monotonic() - started < 3
with limit_time(0.2, TimeoutError("late")):
    pass
time.sleep(0.3)
print("nothing is left behind")
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no such timer")
def test_what_takes_too_long_is_stopped() -> None:
    # In a process of its own, as in a verification: OpenVINO, which other tests load, leaves a
    # process a signal stack that is too small where the processor has AMX, and the next signal of
    # any kind ends it.
    run = subprocess.run(
        [sys.executable, "-c", STOPPED], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (0, "nothing is left behind\n"), run.stderr
