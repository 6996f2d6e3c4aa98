"""Test where a split network is written: no file of an earlier network stays, and no other file is
mixed with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import regraft  # noqa: E402
from regraft.cli import main  # noqa: E402
from split import networks  # noqa: E402

NETWORK = """\
import torch
from torch import nn


class Network(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x * 2
        return x


def build():
    return Network().eval(), [(torch.ones(1, 4),), (-torch.ones(1, 4),)]


def build_model():
    return Network().eval()


def build_tensors():
    return Network().eval(), (torch.ones(1, 4), torch.ones(1, 4))


def build_nothing():
    return Network().eval(), []
"""


def test_no_file_of_an_earlier_network_stays(tmp_path: Path) -> None:
    calls = [(torch.randn(1, 6),) for _ in range(8)]
    split = [
        regraft.split(kind().eval(), calls, cache=False, unseen="raise", measure=False)
        for kind in (networks.Skips, networks.Rare)
    ]
    (tmp_path / "notes.txt").write_text("mine")
    for result in split:
        result.save(tmp_path)
    names = {path.name for path in tmp_path.iterdir()} - {"notes.txt"}
    assert sorted(names) == json.loads((tmp_path / "manifest.json").read_text())["files"]
    assert names == {path.name for path in split[1].directory.iterdir()} - {"__pycache__"}
    assert (tmp_path / "notes.txt").read_text() == "mine"
    x = torch.randn(1, 6)
    assert torch.equal(regraft.load_split(tmp_path)(x), networks.Rare()(x))


def test_a_folder_without_a_network_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no split network is there.*nowhere"):
        regraft.load_split(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("build", ["-o", "file.txt"], "file.txt is a file; a network is written as a folder"),
        ("build", ["-o", "full"], "full has other files: name a new folder"),
        ("build", ["-o", "net.onnx"], "net.onnx names a file"),
        ("build", ["-o", "full", "--single-file"], "full is a folder; --single-file writes a file"),
        ("build", ["-o", "no/net.onnx", "--single-file"], "there is no folder no: make it"),
        ("biuld", ["-o", "out"], "network.py has no function biuld; did you mean build?"),
        ("build_model", ["-o", "out"], "returns Network, not (model, calls)"),
        (
            "build_tensors",
            ["-o", "out"],
            "network.py:20: build_tensors: example call 0 is a Tensor, not a tuple or dict of"
            " arguments; return (model, calls) with calls such as [(x,)]",
        ),
        ("build_nothing", ["-o", "out"], "network.py:24: build_nothing: splitting needs at least"),
    ],
)
def test_a_place_that_does_not_fit_is_refused_at_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    options: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "network.py").write_text(NETWORK)
    (tmp_path / "file.txt").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    outcome = CliRunner().invoke(main, ["split", f"network.py:{target}", *options])
    output = " ".join(outcome.output.split())
    assert (outcome.exit_code, message in output) == (2, True), outcome.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.txt", "full", "network.py"]
