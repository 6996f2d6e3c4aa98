"""Test functions named on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from regraft.source.object_reference import TargetError, find_function


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a folder with a module that builds a value."""
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    (tmp_path / "target_example.py").write_text("value = 3\n\ndef build():\n    return 'built'\n")
    return str(tmp_path)


@pytest.mark.parametrize("spec", ["target_example:build", "target_example.py:build"])
def test_a_module_or_a_file(folder: str, spec: str) -> None:
    assert find_function(spec, folder)() == "built"


def test_a_file_by_its_whole_path(folder: str) -> None:
    assert find_function(f"{folder}/target_example.py:build", "/")() == "built"


@pytest.mark.parametrize("spec", ["", "target_example", ":build", "target_example:"])
def test_what_is_written_differently(folder: str, spec: str) -> None:
    with pytest.raises(ValueError, match="is not written MODULE:FUNCTION"):
        find_function(spec, folder)


@pytest.mark.parametrize("name", ["missing", "value"])
def test_no_such_function(folder: str, name: str) -> None:
    with pytest.raises(ValueError, match=f"has no function {name}"):
        find_function(f"target_example:{name}", folder)


def test_no_such_module(folder: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        find_function("no_such_module_here:build", folder)
    with pytest.raises(TargetError, match=r"there is no file no_such_file\.py"):
        find_function("no_such_file.py:build", folder)
