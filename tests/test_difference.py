"""Test that a unified diff gives the new versions of files and leaves the files alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from regraft.source.applied_diff import DiffError, new_versions
from regraft.source.text import diff

OLD = "import torch\n\n\ndef weights(x):\n    return torch.softmax(x, -1)\n"
NEW = OLD.replace("-1", "1")


@pytest.fixture
def patch(tmp_path: Path) -> Path:
    """Return the path of a diff of one file."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "m.py").write_text(OLD)
    path = tmp_path / "change.patch"
    path.write_text(diff("pkg/m.py", OLD.encode(), NEW.encode()))
    return path


def test_new_versions(patch: Path) -> None:
    assert new_versions(patch, patch.parent) == {patch.parent / "pkg" / "m.py": NEW.encode()}
    assert (patch.parent / "pkg" / "m.py").read_text() == OLD


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no file is changed by it"),
        ("--- a/pkg/n.py\n+++ b/pkg/n.py\n@@ -1 +1 @@\n-a\n+b\n", "changes pkg/n.py, which"),
        ("--- a/../m.py\n+++ b/../m.py\n@@ -1 +1 @@\n-a\n+b\n", "lies outside"),
        ("--- a/pkg/m.py\n+++ b/pkg/m.py\n@@ -1 +1 @@\n-a\n+b\n", "not fit pkg/m.py: .* line 1"),
        ("--- /dev/null\n+++ b/pkg/m.py\n@@ -0,0 +1 @@\n+b\n", "adds pkg/m.py, which exists"),
        ("--- a/pkg/m.py\n+++ b/pkg/m.py\n@@ -1,9 +1 @@\n-a\n+b\n", "line 6 of it is no line"),
        ("--- a/pkg/m.py\n+++ b/pkg/m.py\nhello\n", "git refuses it: No valid patches"),
    ],
)
def test_diffs_that_do_not_fit(patch: Path, text: str, message: str) -> None:
    patch.write_text(text)
    with pytest.raises(DiffError, match=message):
        new_versions(patch, patch.parent)


def test_files_that_are_changed_already(patch: Path) -> None:
    (patch.parent / "pkg" / "m.py").write_text(NEW)
    with pytest.raises(DiffError, match="changed already"):
        new_versions(patch, patch.parent)


def test_without_git(patch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(DiffError, match="git, which is not installed"):
        new_versions(patch, patch.parent)
