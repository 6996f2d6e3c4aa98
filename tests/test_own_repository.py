"""The journey of `examples/own-repository`: check, fix without a driver, and its own tests still
pass."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

EXAMPLE = Path(__file__).parents[1] / "examples" / "own-repository"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module of Python in a folder."""
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_a_repository_is_fixed_without_a_driver(tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache"))
    (folder / "pyproject.toml").touch()
    before = {path: path.read_bytes() for path in folder.rglob("*.py")}
    assert run(folder, "pytest", "-q", "-p", "no:cacheprovider", "tests").returncode == 0
    fixed = run(folder, "regraft", "check", "--target", "cpu", "--no-cache", "--fix", ".")
    assert "definitions: 4 proved, 0 unproven, 0 refuted" in fixed.stdout, fixed.stdout
    assert set(re.findall(r"\w+\.py (\w+): proved", fixed.stdout)) == {
        "Norm",
        "rotate",
        "Attention",
        "Storyteller",
    }
    changed = {path.name for path, text in before.items() if path.read_bytes() != text}
    assert changed == {"layers.py", "model.py"}
    tested = run(folder, "pytest", "-q", "-p", "no:cacheprovider", "tests")
    assert "3 passed" in tested.stdout, tested.stdout
