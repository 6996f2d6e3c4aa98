"""Test `regraft verify --diff-base`: what a branch changed, file after file."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import regraft

Write = Callable[[str, str], Path]

HELPER = "import torch\n\n\ndef halve(x):\n    return x / 2\n"
MODEL = """
from torch import nn

from .helper import halve


class Net(nn.Module):
    def forward(self, x):
        return halve(x) + 1
"""


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def branch(write: Write, tmp_path: Path) -> Path:
    """Make a repository with a package of two modules on the branch `main`; check out another."""
    pytest.importorskip("torch")
    write("pkg/__init__.py", "")
    write("pkg/helper.py", HELPER)
    write("pkg/net.py", MODEL)
    git(tmp_path, "init", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    git(tmp_path, "checkout", "-b", "topic")
    return tmp_path


@pytest.mark.slow
def test_a_branch_is_verified_file_by_file(branch: Path, write: Write) -> None:
    write("pkg/helper.py", HELPER.replace("x / 2", "x * 0.5"))
    git(branch, "commit", "-am", "second")
    write("pkg/net.py", MODEL.replace("halve(x) + 1", "1 + halve(x)"))  # not committed
    write("pkg/more.py", "x = 1\n")
    git(branch, "add", "pkg/more.py")
    result = regraft("verify", "--diff-base", "main", "--output-format", "json", cwd=branch)
    verdicts = json.loads(result.stdout)["verdicts"]
    assert {(verdict["file"], verdict["status"]) for verdict in verdicts} == {
        ("pkg/helper.py", "proved"),
        ("pkg/net.py", "proved"),
    }, verdicts
    assert (result.returncode, "pkg/more.py: added" in result.stderr) == (0, True)
    alone = regraft("verify", "--diff-base", "main", "pkg/net.py", cwd=branch)
    assert "Net: proved" in alone.stdout and "halve" not in alone.stdout


def test_a_wrong_change_is_refuted(branch: Path, write: Write) -> None:
    write("pkg/net.py", MODEL.replace("+ 1", "+ 2"))
    result = regraft("verify", "--diff-base", "main", cwd=branch)
    assert (result.returncode, "pkg/net.py Net: refuted" in result.stdout) == (1, True)


def test_what_git_refuses_is_one_error(
    branch: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for reference, folder in (("nowhere", branch), ("main", tmp_path_factory.mktemp("plain"))):
        result = regraft("verify", "--diff-base", reference, cwd=folder)
        assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert regraft("verify", cwd=branch).returncode == 2
    assert regraft("verify", "--diff-base", "main", "a.py", "b.py", cwd=branch).returncode == 2
    clean = regraft("verify", "--diff-base", "main", cwd=branch)
    assert (clean.returncode, "nothing changed" in clean.stdout) == (0, True)
