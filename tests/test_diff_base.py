"""Test `regraft verify --diff-base`: what a branch changed, file after file."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import STRANGE, regraft

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


@pytest.mark.slow
def test_a_wrong_change_is_refuted(branch: Path, write: Write) -> None:
    write("pkg/net.py", MODEL.replace("+ 1", "+ 2"))
    result = regraft("verify", "--diff-base", "main", cwd=branch)
    assert (result.returncode, "pkg/net.py Net: refuted" in result.stdout) == (1, True)
    # the copy of the tree and the counterexample are no files of the repository
    assert (branch / ".cache" / "regraft" / "reproducers").is_dir()
    status = subprocess.check_output(["git", "status", "--porcelain"], cwd=branch, text=True)
    assert status == " M pkg/net.py\n"


def test_what_git_refuses_is_one_error(
    branch: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    plain, unborn = tmp_path_factory.mktemp("plain"), tmp_path_factory.mktemp("unborn")
    git(unborn, "init", "-b", "main")
    for folder, arguments, message in (
        (branch, ("nowhere",), "no commit has the name nowhere: `git branch --all` lists"),
        (branch, ("main:pkg/net.py",), "no commit has the name main:pkg/net.py"),
        (branch, ("main", "pkg/nothing.py"), "pkg/nothing.py: no such file or directory"),
        (plain, ("main",), f"{plain} is in no git repository: name the two versions"),
        (unborn, ("HEAD",), "no commit has the name HEAD"),
    ):
        result = regraft("verify", "--diff-base", *arguments, cwd=folder)
        assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
        assert message in result.stderr and "fatal" not in result.stderr
    assert regraft("verify", cwd=branch).returncode == 2
    assert regraft("verify", "--diff-base", "main", "a.py", "b.py", cwd=branch).returncode == 2
    clean = regraft("verify", "--diff-base", "main", cwd=branch)
    assert (clean.returncode, "nothing changed" in clean.stdout) == (0, True)


def test_messages_name_the_file_and_not_its_copy(branch: Path, write: Write) -> None:
    """The copy of the old tree is where both versions run, and is no file of the user's."""
    write("pkg/net.py", STRANGE)
    git(branch, "commit", "-am", "second")
    write("pkg/net.py", STRANGE.replace("self.drop(x) + x", "x + self.drop(x)"))
    result = regraft("verify", "--diff-base", "HEAD", cwd=branch)
    assert "regraft driver pkg/net.py --class Strange" in result.stdout
    assert "verification runs code of pkg/net.py" in result.stderr
    assert ".cache" not in result.stdout + result.stderr


def test_a_file_that_does_not_parse_stops_before_anything_runs(branch: Path, write: Write) -> None:
    write("pkg/helper.py", HELPER.replace("x / 2", "x * 0.5"))
    write("pkg/net.py", "x = (\n")
    result = regraft("verify", "--diff-base", "main", cwd=branch)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "error: pkg/net.py:1:5: does not parse: '(' was never closed\n"
