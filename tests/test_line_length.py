"""Test to which length the lines of rewritten code are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from conftest import compiled_rules
from regraft.cli import main
from regraft.scanning import check_file, rewrite_file
from regraft.source.line_length import forget_line_lengths, stated_line_length

Write = Callable[[str, str], Path]

# the call is longer than 60 characters, and shorter than 88
SOURCE = """\
import torch


def activate(first_hidden_states, second_hidden_states):
    return first_hidden_states * torch.sigmoid(first_hidden_states), second_hidden_states
"""


@pytest.fixture(autouse=True)
def no_lengths() -> Iterator[None]:
    """Read the configuration of this test alone."""
    forget_line_lengths()
    yield
    forget_line_lengths()


def rewritten(path: Path) -> str:
    """Return the text of a file in which SiLU is a call."""
    rules = compiled_rules("torch/silu")
    return rewrite_file(check_file(path, rules), rules)[0].decode()


@pytest.mark.parametrize(
    ("name", "text", "length"),
    [
        ("regraft.toml", "line-length = 60", 60),
        ("pyproject.toml", "[tool.regraft]\nline-length = 60", 60),
        ("ruff.toml", "line-length = 60", 60),
        (".ruff.toml", "line-length = 60", 60),
        ("pyproject.toml", "[tool.ruff]\nline-length = 60", 60),
        ("pyproject.toml", "[tool.black]\nline-length = 60", 60),
        ("pyproject.toml", "[tool.black]\nline-length = 60\n[tool.ruff]\nline-length = 70", 70),
        ("pyproject.toml", "[tool.ruff]\nline-length = 60\n[tool.regraft]\nline-length = 70", 70),
        ("pyproject.toml", "[tool.ruff]\nline-length = '60'", 0),
        ("pyproject.toml", "[tool.ruff]\nline-length = 6000", 0),
        ("pyproject.toml", "[tool.ruff\nline-length = 60", 0),
    ],
)
def test_what_a_project_states(write: Write, name: str, text: str, length: int) -> None:
    write(name, text)
    assert stated_line_length(write("src/model.py", SOURCE)) == length


def test_the_nearest_formatter_and_the_own_key_above_it(write: Write) -> None:
    write("ruff.toml", "line-length = 60")
    write("src/ruff.toml", "line-length = 70")
    path = write("src/model.py", SOURCE)
    assert stated_line_length(path) == 70
    forget_line_lengths()
    write("regraft.toml", "line-length = 80")
    assert stated_line_length(path) == 80


def test_installed_packages_belong_to_no_project(write: Write) -> None:
    write("ruff.toml", "line-length = 60")
    assert stated_line_length(write("env/site-packages/net/model.py", SOURCE)) == 0


def test_a_call_is_broken_where_it_is_longer(write: Write) -> None:
    path = write("model.py", SOURCE)
    as_the_file = rewritten(path)
    assert max(map(len, as_the_file.splitlines())) > 60
    forget_line_lengths()
    write("pyproject.toml", "[tool.ruff]\nline-length = 60")
    as_stated = rewritten(path)
    assert max(map(len, as_stated.splitlines())) < len(max(as_the_file.splitlines(), key=len))


@pytest.mark.parametrize("value", ["39", "321", "true", "'60'"])
def test_other_values_are_refused(write: Write, value: str) -> None:
    path = write("regraft.toml", f"line-length = {value}")
    result = CliRunner().invoke(main, ["config", str(path.parent)])
    assert result.exit_code == 2
    assert "`line-length` has to be a whole number from 40 to 320" in result.output


def test_a_file_that_is_named_says_that_it_has_no_effect(write: Write) -> None:
    path = write("other.toml", "line-length = 60")
    result = CliRunner().invoke(main, ["config", "--config", str(path), str(path.parent)])
    assert "line-length has no effect" in result.output
