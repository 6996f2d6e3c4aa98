"""Test that a rewrite is taken back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import regraft
from regraft.source.undo import DIRECTORY

MODEL = """\
import torch.nn.functional as F


def weights(x):
    return F.softmax(x, dim=-1)
"""
FIX = ("check", "--select", "adopter/softmax", "--fix", "--no-verify")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("first.py", "second.py"):
        (tmp_path / name).write_text(MODEL)
    return tmp_path


def test_undo_takes_all_files_back(project: Path) -> None:
    result = regraft(*FIX, ".", cwd=project)
    assert "`regraft undo` takes the rewrite back" in result.stdout
    assert "regraft.ops" in (project / "first.py").read_text()
    (folder,) = (folder for folder in (project / DIRECTORY).iterdir() if folder.is_dir())
    patch = (folder / "undo.patch").read_text()
    assert "+    return F.softmax(x, dim=-1)" in patch
    undone = regraft("undo", cwd=project)
    assert (undone.returncode, undone.stdout) == (0, "2 files taken back\n")
    assert (project / "first.py").read_text() == MODEL
    assert (project / "second.py").read_text() == MODEL
    again = regraft("undo", cwd=project)
    assert again.returncode == 2
    assert "no rewrite is stored" in again.stderr


def test_a_file_that_changed_since_stays(project: Path) -> None:
    regraft(*FIX, ".", cwd=project)
    edited = (project / "first.py").read_text() + "\nMINE = 1\n"
    (project / "first.py").write_text(edited)
    undone = regraft("undo", cwd=project)
    assert undone.returncode == 2
    assert "first.py" in undone.stderr
    assert "has changed since" in undone.stderr
    assert (project / "first.py").read_text() == edited
    assert (project / "second.py").read_text() == MODEL
    (project / "first.py").write_text(MODEL)
    assert regraft("undo", cwd=project).returncode == 0  # nothing is left to do


def test_the_last_of_two_rewrites_is_taken_back_first(project: Path) -> None:
    regraft(*FIX, "first.py", cwd=project)
    regraft(*FIX, "second.py", cwd=project)
    regraft("undo", cwd=project)
    assert (project / "second.py").read_text() == MODEL
    assert (project / "first.py").read_text() != MODEL
    regraft("undo", cwd=project)
    assert (project / "first.py").read_text() == MODEL


def test_vendored_ops_are_deleted_again(project: Path) -> None:
    regraft(*FIX, "--vendor", "first.py", cwd=project)
    assert (project / "regraft_ops.py").exists()
    assert regraft("undo", cwd=project).returncode == 0
    assert not (project / "regraft_ops.py").exists()
    assert (project / "first.py").read_text() == MODEL


def test_encoding_and_line_endings_come_back(project: Path) -> None:
    text = ("# -*- coding: latin-1 -*-\n# Größe\n" + MODEL).replace("\n", "\r\n").encode("latin-1")
    (project / "first.py").write_bytes(text)
    regraft(*FIX, "first.py", cwd=project)
    assert (project / "first.py").read_bytes() != text
    assert regraft("undo", cwd=project).returncode == 0
    assert (project / "first.py").read_bytes() == text


def test_a_damaged_store_is_an_error(project: Path) -> None:
    regraft(*FIX, "first.py", cwd=project)
    (index,) = (project / DIRECTORY).glob("*/files.json")
    index.write_text(json.dumps({"version": 1, "files": [{"path": 3}]}))
    undone = regraft("undo", cwd=project)
    assert undone.returncode == 2
    assert "is damaged" in undone.stderr


def test_nothing_is_rewritten_where_undo_cannot_be_stored(project: Path) -> None:
    (project / ".cache").write_text("a file in the way")
    result = regraft(*FIX, "first.py", cwd=project)
    assert result.returncode == 2
    assert "undo cannot be stored" in result.stderr
    assert (project / "first.py").read_text() == MODEL
