"""Test that the changed version of a file has the neighbours of the original."""

from __future__ import annotations

from pathlib import Path

import pytest

import regraft
from regraft.verification.changed_file import write_changed

MODEL = """\
import json
from pathlib import Path

import torch
from torch import nn

HERE = Path(__file__).parent
WIDTH = json.loads((HERE / "sizes.json").read_text())["width"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.words = (HERE / ".." / "words.txt").read_text().split()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * 2 + x
"""


def test_a_file_that_reads_its_neighbours_is_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "repository" / "models"
    folder.mkdir(parents=True)
    (folder / "sizes.json").write_text('{"width": 8}')
    (folder / ".." / "words.txt").write_text("some words")
    (folder / ".." / "setup.py").touch()
    (folder / "net.py").write_text(MODEL)
    monkeypatch.chdir(folder.parent)
    changed = MODEL.replace("self.inner(x) * 2 + x", "x + 2 * self.inner(x)")
    (verdict,) = regraft.verify("models/net.py", changed.encode(), effort="low")
    assert verdict.status == "proved", verdict.reason


def test_neighbours_are_linked_up_to_the_repository(tmp_path: Path) -> None:
    repository = tmp_path / "elsewhere" / "repository"
    original = repository / "a" / "b" / "c" / "net.py"
    original.parent.mkdir(parents=True)
    (original.parent / "__pycache__").mkdir()
    for file in (repository / "setup.py", repository / "a" / "beside.txt", original):
        file.write_text(file.name)
    target = tmp_path / "target"
    target.mkdir()
    changed = write_changed(b"changed", original, target)
    assert changed == target / "repository" / "a" / "b" / "c" / "net.py"
    assert changed.read_bytes() == b"changed"
    assert original.read_text() == "net.py"
    assert changed.parents[2].joinpath("beside.txt").read_text() == "beside.txt"
    assert changed.parents[3].joinpath("setup.py").read_text() == "setup.py"
    assert not (changed.parent / "__pycache__").exists()
    assert not changed.parent.is_symlink()


def test_without_a_repository_there_are_two_folders(tmp_path: Path) -> None:
    original = tmp_path / "x" / "y" / "z" / "net.py"
    original.parent.mkdir(parents=True)
    target = tmp_path / "target"
    target.mkdir()
    assert write_changed(b"", original, target) == target / "y" / "z" / "net.py"
