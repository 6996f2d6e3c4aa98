"""Test what loads of split networks that another version of Regraft wrote, or that are damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import regraft  # noqa: E402
from split.networks import OneDecision  # noqa: E402


def split(**options: Any) -> Any:
    """Split a network that decides once."""
    calls = [(torch.ones(1, 4),), (-torch.ones(1, 4),)]
    return regraft.split(OneDecision().eval(), calls, cache=False, **options)


OTHER_FORMATS: list[tuple[str, Callable[[dict[str, Any]], Any], str]] = [
    ("newer", lambda facts: {**facts, "format": 2}, "format 2 is unknown, this version"),
    ("true", lambda facts: {**facts, "format": True}, "format True is unknown, this version"),
    (
        "without a format",
        lambda facts: {key: value for key, value in facts.items() if key != "format"},
        "format None is unknown, this version",
    ),
    ("a list", lambda facts: [], "format None is unknown"),
    ("without a report", lambda facts: {**facts, "report": None}, "is damaged"),
    ("an unknown field", lambda facts: {**facts, "report": {"later": 1}}, "is damaged"),
    ("wrong arguments", lambda facts: {**facts, "arguments": 3}, "is damaged"),
]
each_format = pytest.mark.parametrize(
    ("change", "message"),
    [pytest.param(change, message, id=name) for name, change, message in OTHER_FORMATS],
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a split network."""
    path = tmp_path_factory.mktemp("directory")
    split().save(path)
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the single file of a split network."""
    path = tmp_path_factory.mktemp("file") / "net.onnx"
    split(single_file=True).save(path)
    return path


@each_format
def test_a_directory_of_another_format_is_refused(
    directory: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    manifest = directory / "manifest.json"
    text = manifest.read_text()
    try:
        manifest.write_text(json.dumps(change(json.loads(text))))
        with pytest.raises(ValueError, match=message) as error:
            regraft.load_split(directory)
    finally:
        manifest.write_text(text)
    assert str(manifest) in str(error.value) and "split the network again" in str(error.value)
    regraft.load_split(directory)


@each_format
def test_a_file_of_another_format_is_refused(
    file: Path, tmp_path: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    model = onnx.load(file)
    (entry,) = (entry for entry in model.metadata_props if entry.key == "regraft")
    entry.value = json.dumps(change(json.loads(entry.value)))
    path = tmp_path / "net.onnx"
    onnx.save(model, path)
    with pytest.raises(ValueError, match=message) as error:
        regraft.load_split(path)
    assert str(path) in str(error.value) and "split the network again" in str(error.value)
    regraft.load_split(file)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000])
def test_a_damaged_manifest_is_refused(directory: Path, data: bytes) -> None:
    manifest = directory / "manifest.json"
    original = manifest.read_bytes()
    try:
        manifest.write_bytes(data)
        with pytest.raises(ValueError, match=r"manifest\.json: is damaged"):
            regraft.load_split(directory)
    finally:
        manifest.write_bytes(original)


@pytest.mark.parametrize("name", ["manifest.json", "host.py"])
def test_a_directory_that_lacks_a_file_is_no_network(
    directory: Path, tmp_path: Path, name: str
) -> None:
    for path in directory.iterdir():
        if path.name != name and path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises(FileNotFoundError, match=name):
        regraft.load_split(tmp_path)
