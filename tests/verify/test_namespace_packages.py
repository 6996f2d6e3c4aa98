"""Test files of packages without `__init__.py`, which import their neighbours relatively."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from regraft.verification import verify

pytest.importorskip("torch")

MODEL = """\
import torch
from torch import nn

import parts.sizes as sizes

from .scaling import scale


class Layer(nn.Module):
    def __init__(self, width=sizes.WIDTH):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return scale(self.linear(x)) + 1
"""


@pytest.mark.parametrize(("sum_", "status"), [("1 + {}", "proved"), ("2 + {}", "refuted")])
def test_a_file_is_imported_as_a_member_of_its_package(
    sum_: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "sizes.py").write_text("WIDTH = 16\n")
    (folder / "scaling.py").write_text("def scale(x):\n    return x * 2\n")
    file = folder / "model.py"
    file.write_text(MODEL)
    changed = MODEL.replace("scale(self.linear(x)) + 1", sum_.format("scale(self.linear(x))"))
    (verdict,) = verify(file, changed.encode())
    assert verdict.status == status, verdict.reason
    if status == "refuted":
        script = [sys.executable, str(verdict.evidence["reproducer"])]
        run = subprocess.run(script, capture_output=True, text=True, check=False, timeout=120)
        assert (run.returncode, run.stderr) == (1, "")
