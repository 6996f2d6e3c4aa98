"""Test the quick look at the definition that somebody types in: what it shows is what the whole
analysis shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from regraft.server.analysis import Analysis, analyse
from regraft.server.diagnostics import diagnostics_of
from regraft.server.edited_definition_analysis import glimpse_of
from regraft.server.project import project_of

CODE = """import torch
from torch import nn


def first(x):
    return x * torch.sigmoid(x)


class Block(nn.Module):
    @torch.no_grad()
    def forward(self, x):
        y = x + 1
        return y * torch.sigmoid(y)

    def unused(self, x):
        def inner(z):
            return z * torch.sigmoid(z)

        return inner


def last(x):
    return x * torch.sigmoid(x)  # regraft: ignore[torch/gelu]
"""


@pytest.fixture
def whole(tmp_path: Path) -> Analysis:
    """Return the analysis of the code."""
    return analysis_of(CODE, tmp_path)


def analysis_of(text: str, folder: Path) -> Analysis:
    """Return the analysis of a text."""
    file = folder / "model.py"
    return analyse(str(file), text, project_of(file, folder), "utf-16")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("y = x + 1", "y = x + 2\n        z = y"),
        ("y * torch.sigmoid(y)", "y * torch.tanh(y)"),
        ("y = x + 1\n", "y = x\n        s = y * torch.sigmoid(y)\n"),
        ("    def unused(self, x):\n", "    def unused(self, x, k=2):\n\n"),
        ("z * torch.sigmoid(z)", "z"),
        ("return y * ", "return (y) * "),
        ("y = x + 1", "y = x + 1  # \u00e9\U0001f600"),
        ("  # regraft: ignore[torch/gelu]", "  # regraft: ignore[torch/silu]"),
    ],
)
def test_a_change_within_a_definition(
    before: str, after: str, whole: Analysis, tmp_path: Path
) -> None:
    assert len(whole.report.findings) == 4
    text = CODE.replace(before, after, 1)
    assert text != CODE
    glimpse = glimpse_of(text, whole)
    assert glimpse is not None
    assert glimpse.diagnostics == sorted(
        diagnostics_of(analysis_of(text, tmp_path)), key=lambda shown: shown.range.start
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import torch\n", "import torch\n\n"),
        ("x * torch.sigmoid(x)", "x"),  # in two definitions
        ("def first", "def other"),
        ("def first(x):\n", "@nothing\ndef first(x):\n"),
        ("def last", "y = 1\n\n\ndef last"),
        ("return y", "return ("),
        ("import torch\n", ""),
    ],
)
def test_another_change_needs_the_whole_analysis(before: str, after: str, whole: Analysis) -> None:
    text = CODE.replace(before, after)
    assert text != CODE and glimpse_of(text, whole) is None


def test_a_text_that_is_gone_or_new_needs_the_whole_analysis(
    whole: Analysis, tmp_path: Path
) -> None:
    assert glimpse_of("", whole) is None
    assert glimpse_of("\0", whole) is None
    assert glimpse_of(CODE, analysis_of("", tmp_path)) is None
    assert glimpse_of(CODE, analysis_of("(", tmp_path)) is None
