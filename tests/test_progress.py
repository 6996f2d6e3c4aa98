"""Test what a verification says on stderr while it runs."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

MODEL = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.projection = nn.Linear(width, width)

    def forward(self, x: torch.Tensor):
        return x + self.projection(x)
"""


def test_a_terminal_shows_what_runs(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "changed.py").write_text(MODEL.replace("x + self", "2 * x + self"))
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "regraft", "verify", "--no-cache", "model.py", "changed.py"]
    finished = subprocess.run(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=terminal, text=True, check=False
    )
    os.close(terminal)
    shown = os.read(controller, 65536).decode()
    os.close(controller)
    assert finished.returncode == 1
    assert "model.py Block: refuted" in finished.stdout
    assert "running both versions of model.py" in shown
    assert shown.rstrip("\r\n").endswith("\r\x1b[K")  # nothing stays on the line
