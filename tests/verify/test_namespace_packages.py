"""Test files of packages without `__init__.py`, which import their neighbours relatively."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from regraft.verification import verify

pytest.importorskip("torch")

MODEL = """\
import torch
from torch import nn

import parts.sizes as sizes

from .scaling import scale


class Layer(nn.Module):
    def __init__(self, width=sizes.WIDTH):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return scale(self.linear(x)) + 1
"""


@pytest.mark.parametrize(("sum_", "status"), [("1 + {}", "proved"), ("2 + {}", "refuted")])
def test_a_file_is_imported_as_a_member_of_its_package(
    sum_: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "sizes.py").write_text("WIDTH = 16\n")
    (folder / "scaling.py").write_text("def scale(x):\n    return x * 2\n")
    file = folder / "model.py"
    file.write_text(MODEL)
    changed = MODEL.replace("scale(self.linear(x)) + 1", sum_.format("scale(self.linear(x))"))
    (verdict,) = verify(file, changed.encode())
    assert verdict.status == status, verdict.reason
    if status == "refuted":
        script = [sys.executable, str(verdict.evidence["reproducer"])]
        run = subprocess.run(script, capture_output=True, text=True, check=False, timeout=120)
        assert (run.returncode, run.stderr) == (1, "")


def in_package(tmp_path: Path, init: str) -> Path:
    """Write a package with an `__init__.py` and MODEL, and return the model's file."""
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "__init__.py").write_text(init)
    (folder / "sizes.py").write_text("WIDTH = 16\n")
    (folder / "scaling.py").write_text("def scale(x):\n    return x * 2\n")
    (folder / "compiled.py").write_text("from no_such_extension import run\n")
    file = folder / "model.py"
    file.write_text(MODEL)
    return file


@pytest.mark.parametrize(("sum_", "status"), [("1 + {}", "proved"), ("2 + {}", "refuted")])
def test_an_init_that_needs_a_missing_module_is_left_out(
    sum_: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    init = '"""Parts."""\nfrom .compiled import run\n\n\nclass Run(run):\n    pass\n'
    file = in_package(tmp_path, init)
    changed = MODEL.replace("scale(self.linear(x)) + 1", sum_.format("scale(self.linear(x))"))
    (verdict,) = verify(file, changed.encode())
    assert verdict.status == status, verdict.reason
    if status == "proved":
        domain: Any = verdict.evidence["domain"]
        assert domain["import"] == [
            "without parts/__init__.py (ModuleNotFoundError: No module named 'no_such_extension')"
        ]
    else:
        script = [sys.executable, str(verdict.evidence["reproducer"])]
        run = subprocess.run(script, capture_output=True, text=True, check=False, timeout=120)
        assert (run.returncode, run.stderr) == (1, "")


@pytest.mark.parametrize(
    "init",
    [
        "from . import sizes\nsizes.WIDTH = 8\nfrom .compiled import run\nrun()\n",
        "import torch\ntorch.set_default_dtype(torch.float64)\nfrom .compiled import run\nrun()\n",
        "FLAG = print('effect')\nfrom .compiled import run\nclass Run(run): pass\n",
    ],
)
def test_an_init_with_effects_is_not_left_out(
    init: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = in_package(tmp_path, init)
    changed = MODEL.replace("scale(self.linear(x)) + 1", "1 + scale(self.linear(x))")
    (verdict,) = verify(file, changed.encode())
    assert verdict.status == "unproven"
    assert "does not import: ModuleNotFoundError" in verdict.reason


SCRIPT = """\
import torch
from torch import nn

from sizes import *
from scaling import scale

{read}


class Layer(nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return scale(self.linear(x)) + 1
"""


@pytest.mark.parametrize(
    ("scaling", "sum_", "status"),
    [
        ("scale", "1 + {}", "proved"),
        ("scale", "2 + {}", "refuted"),
        ("other", "1 + {}", "unproven"),
    ],
)
def test_a_script_imports_its_neighbours_by_their_names(
    scaling: str, sum_: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of scripts may have an `__init__.py`; a neighbour counts where it has the names."""
    monkeypatch.chdir(tmp_path)
    file = in_package(tmp_path, "")
    (file.parent / "scaling.py").write_text(f"def {scaling}(x):\n    return x * 2\n")
    read = "text = open('no/such/text.txt').read()" if status == "proved" else "text = ''"
    original = SCRIPT.replace("{read}", read)
    file.write_text(original)
    changed = original.replace("scale(self.linear(x)) + 1", sum_.format("scale(self.linear(x))"))
    (verdict,) = verify(file, changed.encode())
    assert verdict.status == status, verdict.reason
    if status == "unproven":
        assert "does not import: ImportError: cannot import name 'scale'" in verdict.reason
    elif status == "refuted":
        script = [sys.executable, str(verdict.evidence["reproducer"])]
        run = subprocess.run(script, capture_output=True, text=True, check=False, timeout=120)
        assert (run.returncode, run.stderr) == (1, "")
    else:
        domain: Any = verdict.evidence["domain"]
        assert any("without the statements on lines 7" in line for line in domain["import"])
