"""Test the exit codes of `regraft check`, row by row of the table in docs/ci.md, and that its
counts add up."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command_line import STRANGE, regraft

Write = Callable[[str, str], Path]

FIXABLE = """
import torch


def weights(scores):
    return torch.softmax(scores, dim=-1)
"""
WITHHELD = """
import torch


def spread(scores):
    return torch.softmax(  # a comment that a rewrite would lose
        scores, dim=-1
    )
"""
NOTHING = "import torch\n"
BROKEN = "def f(:\n"


def totals(*arguments: object) -> tuple[int, dict[str, Any]]:
    """Return the exit status of a check and its totals, which have to add up."""
    result = regraft("check", "--all", "--output-format", "json", *arguments)
    data = json.loads(result.stdout)
    summary = data["summary"]
    assert summary["findings"] == summary["fixable"] + summary["withheld"]
    if "--fix" in arguments:
        assert summary["fixable"] == summary["fixed"] + summary["remaining"]
    else:
        assert summary["remaining"] == summary["fixable"] and summary["fixed"] == 0
        assert summary["findings"] == len(data["findings"])
    return result.returncode, summary


@pytest.mark.parametrize(
    ("code", "options", "status"),
    [
        (NOTHING, (), 0),
        (NOTHING, ("--fix",), 0),
        (WITHHELD, (), 0),
        (WITHHELD, ("--fix", "--no-verify"), 0),
        (FIXABLE, (), 1),
        (FIXABLE + WITHHELD, (), 1),
        (FIXABLE, ("--fix", "--no-verify"), 0),
        (FIXABLE + WITHHELD, ("--fix", "--no-verify"), 0),
        (FIXABLE, ("--ignore", "softmax"), 0),
        (BROKEN, (), 2),
        (BROKEN, ("--fix",), 2),
        (FIXABLE, ("--select", "sofmax"), 2),
    ],
)
def test_the_status_says_whether_something_could_be_fixed(
    write: Write, code: str, options: tuple[str, ...], status: int
) -> None:
    assert totals(*options, write("m.py", code))[0] == status


@pytest.mark.parametrize(("code", "status"), [(NOTHING, 0), (WITHHELD, 0), (FIXABLE, 1)])
def test_a_diff_has_the_status_of_the_check(write: Write, code: str, status: int) -> None:
    result = regraft("check", "--all", "--diff", write("m.py", code))
    assert (result.returncode, bool(result.stdout)) == (status, bool(status))


@pytest.mark.slow
def test_what_is_not_proved_remains(write: Write, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    status, summary = totals("--fix", write("m.py", STRANGE))
    assert (status, summary["fixed"], summary["remaining"]) == (1, 0, 1)
    status, summary = totals("--fix", "--unproven", tmp_path / "m.py")
    assert (status, summary["fixed"], summary["remaining"]) == (0, 1, 0)


def test_a_bad_file_is_2_and_the_others_are_fixed(write: Write, tmp_path: Path) -> None:
    path, _ = write("a.py", FIXABLE), write("b.py", BROKEN)
    status, summary = totals("--fix", "--no-verify", tmp_path)
    assert (status, summary["fixed"], summary["errors"]) == (2, 1, 1)
    assert "torch.softmax" not in path.read_text()


def test_files_of_tests_that_fix_passes_over_remain(write: Write, tmp_path: Path) -> None:
    write("a.py", FIXABLE)
    write("tests/b.py", FIXABLE)
    status, summary = totals("--fix", "--no-verify", tmp_path)
    assert (status, summary["fixed"], summary["remaining"]) == (1, 1, 1)


RMS_NORM = """
import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + self.eps))
"""


def test_counts_add_up_where_two_rules_find_one_place(write: Write) -> None:
    select = ("--select", "torch/rms-norm,liger/rms-norm")
    path = write("m.py", RMS_NORM)
    assert totals(*select, path)[1]["fixable"] == 2
    result = regraft("check", "--all", "--fix", "--no-verify", *select, path)
    assert result.returncode == 0
    assert f"{path}: fixed 2 findings; nothing was verified" in result.stdout
    assert "2 findings (2 fixable), 2 fixed, 0 not fixed, 1 file" in result.stdout


def test_what_is_no_file_to_scan_is_not_counted(write: Write, tmp_path: Path) -> None:
    notebook = write("notes.ipynb", "{}")
    status, summary = totals(tmp_path / "missing", notebook, write("m.py", NOTHING))
    assert (status, summary["files"], summary["errors"]) == (2, 1, 2)
    assert totals(write("b.py", BROKEN))[1]["files"] == 1
