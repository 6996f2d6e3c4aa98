"""Test fully qualified names through every kind of import and alias."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from regraft.source.qualified_names import Names, module_names, package_of, root_and_package


def names(text: str, package: str = "") -> Names:
    """Return the names of a module's text."""
    return module_names(ast.parse(text), package)


def resolve(text: str, expression: str, package: str = "") -> str | None:
    """Return the qualified name of an expression; None if it has none."""
    return names(text, package).resolve(ast.parse(expression, mode="eval").body)


@pytest.mark.parametrize(
    ("text", "expression", "expected"),
    [
        ("import torch", "torch.nn.Linear", "torch.nn.Linear"),
        ("import torch.nn as nn", "nn.Linear", "torch.nn.Linear"),
        ("import torch.nn.functional", "torch.nn.functional.gelu", "torch.nn.functional.gelu"),
        ("from torch import nn", "nn.functional.softmax", "torch.nn.functional.softmax"),
        ("import torch.nn.functional as F", "F.softmax", "torch.nn.functional.softmax"),
        ("from torch.nn import LayerNorm as LN", "LN", "torch.nn.LayerNorm"),
        ("from torch import nn\nLN = nn.LayerNorm", "LN", "torch.nn.LayerNorm"),
        ("from torch import nn\nA = nn\nB = A.Linear", "B", "torch.nn.Linear"),
        ("if True:\n    import torch", "torch.add", "torch.add"),
        ("try:\n    import torch\nexcept ImportError:\n    torch = None", "torch.add", None),
        ("from torch.nn import Linear\nclass Linear: pass", "Linear", None),
        ("x = 1", "x.y", None),
        ("", "torch.add", None),
    ],
)
def test_resolution(text: str, expression: str, expected: str | None) -> None:
    assert resolve(text, expression) == expected


@pytest.mark.parametrize(
    ("text", "package", "expected"),
    [
        ("from ...activations import ACT2FN as X", "lib.models.bert", "lib.activations.ACT2FN"),
        ("from . import X", "lib.models", "lib.models.X"),
        ("from .a import X", "lib.models", "lib.models.a.X"),
        ("from ..a import X", "", "..a.X"),
    ],
)
def test_relative_imports(text: str, package: str, expected: str) -> None:
    assert resolve(text, "X", package) == expected


def test_stars_and_definitions() -> None:
    file_names = names("from torch.nn import *\nclass A: pass\ndef f(): pass")
    assert file_names.stars == ("torch.nn",)
    assert set(file_names.definitions) == {"A", "f"}


def test_names_of_numbers() -> None:
    text = "EPS = 1e-8\nSIZE = 4\nLOW: float = -1\nBASE = 2\nBASE += 1\nFLAG = True\n"
    text += "ROOT = 2**0.5\nif SIZE:\n    STEP = 1\nelse:\n    STEP = 0.5\nOTHER = 1\nOTHER = EPS\n"
    text += "COUNT = 0\ndef count():\n    global COUNT\n    COUNT = None\n"
    expected = {"EPS": False, "SIZE": True, "LOW": True, "STEP": False}
    assert names(text).numbers == expected
    assert names(f"from settings import *\n{text}").numbers == {}


def test_package_is_read_off_the_init_files(tmp_path: Path) -> None:
    (tmp_path / "lib" / "sub").mkdir(parents=True)
    for directory in (tmp_path / "lib", tmp_path / "lib" / "sub"):
        (directory / "__init__.py").touch()
    assert package_of(tmp_path / "lib" / "sub" / "m.py") == "lib.sub"
    assert package_of(tmp_path / "m.py") == ""


@pytest.mark.parametrize(
    ("text", "package"),
    [
        ("import torch\n", ""),
        ("from .other import width\n", "inner"),
        ("def f():\n    from ..other import width\n", "outer.inner"),
        ("from .other import (\n", ""),
    ],
)
def test_relative_imports_make_a_package_of_folders_without_an_init(
    text: str, package: str, tmp_path: Path
) -> None:
    folder = tmp_path / "outer" / "inner"
    folder.mkdir(parents=True)
    file = folder / "m.py"
    file.write_text(text)
    depth = len(package.split(".")) if package else 0
    assert root_and_package(file) == ([folder, *folder.parents][depth], package)
    (folder / "__init__.py").touch()
    assert root_and_package(file) == (folder.parent, "inner")


def test_a_folder_with_a_dot_in_its_name_is_no_package(tmp_path: Path) -> None:
    folder = tmp_path / "v1.0"
    folder.mkdir()
    (folder / "m.py").write_text("from .other import width\n")
    assert root_and_package(folder / "m.py") == (folder, "")
