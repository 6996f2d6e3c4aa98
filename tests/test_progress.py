"""Test what a verification says on stderr while it runs."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import regraft
from regraft.report.terminal import Progress

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


@pytest.mark.slow
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


NETWORK = """\
import torch
from torch import nn


class Exit(nn.Module):
    def __init__(self):
        super().__init__()
        self.early, self.late = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        y = self.early(x).relu()
        if y.sum() > 2.0:
            return y
        return self.late(y)


def build():
    torch.manual_seed(0)
    return Exit().eval(), [(torch.randn(1, 8) * size,) for size in (0.1, 3.0)]
"""


def test_a_split_says_what_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(tmp_path)
    import net  # type: ignore[import-not-found]

    activities: list[str] = []
    model, calls = net.build()
    regraft.split(model, calls, cache=False, watch=activities.append)
    assert activities[:3] == [
        "loading the exporter",
        "specialising",
        "collecting samples of regions",
    ]
    assert "compiling region 2 of 2" in activities
    assert "comparing results on input 1" in activities
    assert activities[-2:] == ["emitting and checking the artefact", "timing the network"]


@pytest.mark.parametrize(("progress", "is_shown"), [(True, True), (False, False), (None, False)])
def test_optimize_says_what_it_runs_where_it_is_asked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    progress: bool | None,
    is_shown: bool,
) -> None:
    (tmp_path / "progress_model.py").write_text(MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        Progress,
        "say_part",
        lambda self, part: print(f"{self.sentence()}: {part}", file=sys.stderr),
    )
    import progress_model  # type: ignore[import-not-found]

    with pytest.warns(UserWarning, match="nothing in Block was rewritten"):
        regraft.optimize(progress_model.Block(), select=["gelu"], progress=progress)
    assert ("rewriting Block, 0 s: progress_model.py" in capsys.readouterr().err) is is_shown
