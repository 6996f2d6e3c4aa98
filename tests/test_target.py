"""Test functions named on the command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from regraft.source.object_reference import (
    TargetError,
    check_target,
    find_function,
    place_of_function,
)


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
    with pytest.raises(TargetError, match="there is no module no_such_module_here"):
        find_function("no_such_module_here:build", folder)
    with pytest.raises(TargetError, match=r"there is no file no_such_file\.py"):
        find_function("no_such_file.py:build", folder)


def test_a_module_that_lacks_another_one_is_there(folder: str) -> None:
    Path(folder, "lacking_example.py").write_text("import no_such_module_here\n")
    with pytest.raises(ModuleNotFoundError):
        find_function("lacking_example:build", folder)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("target_example.py:biuld", "has no function biuld; did you mean build?"),
        ("target_example:biuld", "has no function biuld; did you mean build?"),
        ("taget_example.py:build", "there is no file taget_example.py; did you mean target_exam"),
        ("taget_example:build", "there is no module taget_example; did you mean target_example?"),
        ("parts/network:build", "there is no module parts/network; did you mean parts/network.py?"),
        ("no_such_package.part:build", "there is no module no_such_package.part"),
        ("target_example", "is not written MODULE:FUNCTION"),
    ],
)
def test_what_is_not_there_is_noticed_without_an_import(
    folder: str, spec: str, message: str
) -> None:
    Path(folder, "target_example.py").write_text("raise SystemExit\n\ndef build(): pass\n")
    Path(folder, "parts").mkdir()
    Path(folder, "parts", "network.py").touch()
    with pytest.raises(TargetError, match=re.escape(message)):
        check_target(spec, folder, is_imported_here=True)


@pytest.mark.parametrize(
    "text",
    [
        "for _ in range(1):\n    while True:\n        def build(): pass\n        break\n",
        "match 1:\n    case build: pass\n",
        "def make():\n    global build\n    build = print\n",
        "from builders import build\n",
        "from builders import *\n",
        "globals()['build'] = print\n",
        "def __getattr__(name): return print\n",
        "def build(:\n",  # the import says what is wrong with it
    ],
)
def test_a_name_that_the_text_may_bind_is_not_refused(folder: str, text: str) -> None:
    Path(folder, "target_example.py").write_text(text)
    check_target("target_example.py:build", folder)


def test_modules_elsewhere_are_left_to_their_interpreter(folder: str) -> None:
    check_target("no_such_package.part:build", folder)
    check_target("json:dumps", folder, is_imported_here=True)


def test_a_file_that_imports_from_its_package_is_named_by_its_module(folder: str) -> None:
    place = Path(folder, "own_package", "parts")
    place.mkdir(parents=True)
    for path in (place.parent / "__init__.py", place / "__init__.py"):
        path.touch()
    (place / "net.py").write_text("from ..layers import Layer\n\ndef build(): pass\n")
    message = "write own_package.parts.net:build, from the folder that has own_package"
    with pytest.raises(TargetError, match=message):
        check_target("own_package/parts/net.py:build", folder)
    (place / "net.py").write_text("try:\n    from . import a\nexcept ImportError:\n    build = 1\n")
    check_target("own_package/parts/net.py:build", folder)


def test_the_place_of_a_function(folder: str) -> None:
    find_function("target_example.py:build", folder)
    assert place_of_function("target_example.py:build", folder) == "target_example.py:3: build"
    find_function("target_example:build", folder)
    place = place_of_function("target_example:build", folder)
    assert place.endswith("target_example.py:3: build")


def test_a_target_without_a_place_names_itself(folder: str) -> None:
    assert place_of_function("builtins:len", folder) == "builtins:len"
    assert place_of_function("no_such_module:build", folder) == "no_such_module:build"
