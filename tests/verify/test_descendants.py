"""Test that processes started by the code under test end with the verification, also outside its
process group."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from regraft.verification import verify
from regraft.verification.containment import Containment

pytest.importorskip("torch")

STARTS = """
import os
import subprocess
import sys
import time

from torch import nn

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:  # its parent ends at once
        with open({file!r}, "a") as file:
            file.write(f"{{os.getpid()}}\\n")
        {execute}
        time.sleep(600)
    os._exit(0)
while not os.path.exists({file!r}):
    time.sleep(0.01)
{then}


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dense = nn.Linear(dim, dim)

    def forward(self, x):
        return self.dense(x) + 1
"""
BARE = "os.execve(sys.executable, [sys.executable, '-c', 'import time; time.sleep(600)'], {})"
CRASH = 'if "__regraft" in __name__:\n    os.abort()'
HANG = 'if "__regraft" in __name__:\n    time.sleep(600)'


def is_alive(pid: int) -> bool:
    """Return whether a process runs."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize(
    ("execute", "then", "seconds"),
    [
        ("pass", "pass", 60.0),
        (BARE, "pass", 60.0),
        ("pass", CRASH, 60.0),
        ("pass", HANG, 2.0),
        (BARE, HANG, 2.0),
    ],
    ids=[
        "finished",
        "finished without its environment",
        "crashed",
        "ended",
        "ended without its environment",
    ],
)
def test_no_process_outlives_a_verification(
    execute: str, then: str, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path, noted = tmp_path / "layer.py", tmp_path / "pids"
    text = STARTS.format(file=str(noted), execute=execute, then=then)
    path.write_text(text, encoding="utf-8")
    verify(
        path,
        text.replace("self.dense(x) + 1", "1 + self.dense(x)").encode(),
        time_limit=seconds,
        containment=Containment("off"),  # processes of a namespace end with it in any case
    )
    pids = [int(line) for line in noted.read_text(encoding="utf-8").split()]
    assert pids
    deadline = time.monotonic() + 5
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_alive, pids))
