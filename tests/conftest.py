"""Shared helpers: a file on disk from text, and its structures."""

from __future__ import annotations

import importlib.util
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from regraft.source import SourceFile, parse
from regraft.structure import Body, Module, Structure


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's cache."""
    monkeypatch.setenv("REGRAFT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    """Write a dedented text to a file of the test's own directory."""

    def make(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    return make


def source_of(text: str) -> SourceFile:
    """A parsed file that is not on disk."""
    source = parse("model.py", textwrap.dedent(text).encode())
    assert isinstance(source, SourceFile), source
    return source


def body_of(text: str, name: str = "forward") -> tuple[Structure, Body]:
    """The structure and body of the function `name`."""
    for structure in Module(source_of(text)).structures():
        for body in structure.bodies:
            if body.name == name:
                return structure, body
    raise LookupError(name)


@pytest.fixture(scope="session")
def transformers() -> Path:
    """The installed transformers package; the test is skipped without it."""
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None:
        pytest.skip("transformers is not installed")
    return Path(spec.origin).parent
