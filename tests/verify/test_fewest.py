"""Of a refuted change, the patches that are enough for the difference."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from regraft.verify import verify
from regraft.verify.fewest import fewest

MODEL = """import torch
from torch import nn


class Other(nn.Module):
    def forward(self, x):
        return x + 1


class Model(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)

    def forward(self, x):
        x = self.first(x)
        x = x * torch.sigmoid(x)

        x = self.second(x)
        weights = torch.exp(x) / torch.exp(x).sum(-1, keepdim=True)

        return weights + 1
"""
CHANGED = (
    MODEL.replace("import torch\n", "import torch\nimport torch.nn.functional as F\n")
    .replace("return x + 1", "return 1 + x")
    .replace("x = x * torch.sigmoid(x)", "x = F.silu(x)")
    .replace("torch.exp(x) / torch.exp(x).sum(-1, keepdim=True)", "torch.softmax(x, 0)")
)


def test_only_the_wrong_patch_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # reproducers are written below the working directory
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    verdicts = {one.definition: one for one in verify(path, CHANGED.encode())}
    assert verdicts["Other"].status == "proved" and verdicts["Model"].status == "refuted"
    wrong = CHANGED.splitlines().index("        weights = torch.softmax(x, 0)") + 1
    assert verdicts["Model"].evidence["lines that are enough"] == [wrong]
    script = Path(str(verdicts["Model"].evidence["reproducer"]))
    shown = script.with_name(script.stem + ".changed.txt").read_text()
    assert "F.silu" not in shown and "1 + x" not in shown and "torch.softmax(x, 0)" in shown
    assert subprocess.run([sys.executable, str(script)], capture_output=True, check=False).returncode == 1


def test_patches_that_need_each_other_stay() -> None:
    original, changed = b"def f():\n    a = 1\n    b = 2\n    c = 3\n", b"def f():\n    a = 5\n    b = 2\n    c = 6\n"
    assert fewest(original, changed, lambda text: b"5" in text and b"6" in text) == (changed, ())
    assert fewest(original, changed, lambda text: b"6" in text) == (original.replace(b"3", b"6"), (4,))
    assert fewest(original, changed, lambda text: False) == (changed, ())


def test_lines_that_are_taken_away_and_imports_that_stay() -> None:
    original = b"import a\n\n\ndef f():\n    a = 1\n    b = 2\n    c = 3\n    return c\n"
    changed = b"import z\n\n\ndef f():\n    b = 2\n    c = 4\n    return c\n"
    text, lines = fewest(original, changed, lambda text: b"a = 1" not in text)
    assert text == b"import z\n\n\ndef f():\n    b = 2\n    c = 3\n    return c\n" and lines == (5,)
