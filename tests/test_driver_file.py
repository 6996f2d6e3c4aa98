"""`regraft driver`: the driver that it writes builds the model of a file, and says what is
missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MODEL = """
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from pieces.norms import scale


@dataclass
class ModelArgs:
    width: int = 512
    heads: int = 8
    vocabulary: int = 30000
    norm: type = nn.LayerNorm


class Attention(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        self.heads = args.heads
        self.qkv = nn.Linear(args.width, 3 * args.width)
        self.flash = hasattr(F, "scaled_dot_product_attention")
        if not self.flash:
            self.register_buffer("causal", torch.ones(1, 1, 64, 64).tril())

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        if self.flash:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) * scale(q)
            scores = scores.masked_fill(self.causal[:, :, :length, :length] == 0, float("-inf"))
            y = F.softmax(scores, dim=-1) @ v
        return y.transpose(1, 2).reshape(batch, length, width)


class Model(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        self.table = nn.Embedding(args.vocabulary, args.width)
        self.layers = nn.ModuleList([Attention(args) for _ in range(2)])
        self.norm = args.norm(args.width)

    def forward(self, ids):
        x = self.table(ids)
        for layer in self.layers:
            x = x + layer(x)
        return self.norm(x)


class Picky(nn.Module):
    def __init__(self, width, table):
        super().__init__()
        self.table = {"a": table.special(width)}

    def forward(self, x):
        return x
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a model's file in a repository whose folders have no `__init__.py`."""
    (tmp_path / "pieces").mkdir()
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "pieces" / "norms.py").write_text("def scale(q):\n    return q.shape[-1] ** -0.5\n")
    path = tmp_path / "pieces" / "model.py"
    path.write_text(MODEL)
    return path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Regraft in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "regraft", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_driver_builds_the_outermost_class_and_proves_rewrites(
    model: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "work"
    elsewhere.mkdir()
    written = run(elsewhere, "driver", str(model))
    assert written.returncode == 0, written.stderr
    assert written.stdout.startswith("wrote model_driver.py: builds Model\nnext: regraft check")
    text = (elsewhere / "model_driver.py").read_text()
    assert "args=module.ModelArgs(width=32, heads=4, vocabulary=99)," in text, text
    assert text.count("{'ids': torch.randint(") == 2
    assert "TODO" not in text
    verified = run(
        elsewhere,
        *("verify", "--effort", "low", "--no-cache", "--driver", "model_driver.py:build"),
        *("--select", "softmax", str(model)),
    )
    assert "Attention: proved" in verified.stdout, verified.stdout
    assert "model_driver.py:build" in verified.stdout


def test_the_driver_marks_what_could_not_be_guessed(model: Path, tmp_path: Path) -> None:
    written = run(tmp_path, "driver", str(model), "--class", "Picky", "--out", "picky.py")
    assert written.returncode == 0, written.stderr
    assert "fill in: Picky: cannot be built from" in written.stdout
    text = (tmp_path / "picky.py").read_text()
    assert "# TODO: Picky: cannot be built from" in text
    assert "# TODO: the inputs of Picky.forward" in text
    compile(text, "picky.py", "exec")


def test_a_configuration_of_no_class_is_written_as_a_namespace(tmp_path: Path) -> None:
    source = """from torch import nn


class Head(nn.Module):
    def __init__(self, spec):
        super().__init__()
        self.lin = nn.Linear(spec.width, spec.heads)

    def forward(self, x):
        return self.lin(x)
"""
    (tmp_path / "head.py").write_text(source)
    written = run(tmp_path, "driver", "head.py")
    assert written.returncode == 0, written.stderr
    text = (tmp_path / "head_driver.py").read_text()
    assert "from types import SimpleNamespace" in text
    assert "spec=SimpleNamespace(heads=2, width=32)" in text
    assert "TODO" not in text


def test_calls_to_fill_in_have_the_names_of_the_parameters(tmp_path: Path) -> None:
    source = """from torch import nn


class Net(nn.Module):
    def __init__(self, recipe):
        super().__init__()
        self.layer = nn.Linear(recipe["size"], 4)

    def forward(self, idx, mask, *, scale, targets=None):
        return self.layer(idx) * mask * scale
"""
    (tmp_path / "net.py").write_text(source)
    assert run(tmp_path, "driver", "net.py").returncode == 0
    text = (tmp_path / "net_driver.py").read_text()
    compile(text, "net_driver.py", "exec")
    first = '{"idx": torch.randn(2, 8, 32), "mask": torch.randn(2, 8, 32), "scale": torch.'
    assert first in text and '"targets"' not in text
    missing = run(tmp_path, "driver", "nowhere.py")
    assert (missing.returncode, missing.stderr) == (2, "error: nowhere.py: no such file\n")
    folder = run(tmp_path, "driver", ".")
    assert (folder.returncode, folder.stderr) == (2, "error: . is a folder: name a file\n")


@pytest.mark.slow
def test_wrong_input_is_an_error_with_its_place(model: Path, tmp_path: Path) -> None:
    unknown = run(tmp_path, "driver", str(model), "--class", "Modell")
    assert unknown.returncode == 2
    assert "no subclass of torch.nn.Module called 'Modell'; it has Attention" in unknown.stderr
    (tmp_path / "model_driver.py").write_text("mine")
    existing = run(tmp_path, "driver", str(model))
    assert existing.returncode == 2
    assert "model_driver.py exists already" in existing.stderr
    assert (tmp_path / "model_driver.py").read_text() == "mine"
    (tmp_path / "broken.py").write_text(
        "from no_such_package import Base\n\n\nclass Layer(Base):\n    pass\n"
    )
    broken = run(tmp_path, "driver", "broken.py")
    assert broken.returncode == 2
    assert "No module named 'no_such_package'" in broken.stderr
    (tmp_path / "functions.py").write_text("def f(x):\n    return x\n")
    functions = run(tmp_path, "driver", "functions.py")
    assert functions.returncode == 2
    assert "it defines no subclass of torch.nn.Module" in functions.stderr


@pytest.mark.slow
def test_flags_that_constructors_compute_take_both_values(model: Path) -> None:
    verified = run(
        model.parent, "verify", "--effort", "low", "--no-cache", "--select", "softmax", str(model)
    )
    assert "Attention: proved" in verified.stdout, verified.stdout
    assert "self.flash=False" in verified.stdout


CAPABILITY = """
import torch
from torch import nn
from torch.nn import functional as F

FUSED = hasattr(F, "scaled_dot_product_attention")


class Scores(nn.Module):
    fused = True

    def __init__(self, width: int = 32):
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.register_buffer("kept", torch.eye(width).to_sparse(), persistent=False)

    def forward(self, x):
        if FUSED and Scores.fused:
            return self.dense(x)
        weights = torch.nn.functional.softmax(self.dense(x), dim=-1)
        return weights @ self.kept.to_dense()


def unfused():
    Scores.fused = False
"""


@pytest.mark.slow
def test_flags_of_classes_and_files_take_both_values(tmp_path: Path) -> None:
    path = tmp_path / "scores.py"
    path.write_text(CAPABILITY)
    verified = run(tmp_path, "verify", "--no-cache", "--select", "softmax", str(path))
    assert "Scores: proved" in verified.stdout, verified.stdout
    assert "FUSED=False" in verified.stdout
    changed = tmp_path / "changed.py"
    changed.write_text(CAPABILITY.replace("return weights @", "return 1.001 * weights @"))
    refuted = run(tmp_path, "verify", "--no-cache", str(path), str(changed))
    assert "Scores: refuted" in refuted.stdout, refuted.stdout
