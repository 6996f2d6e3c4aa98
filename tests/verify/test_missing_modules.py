"""Test files that import modules which are not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from verdicts import verdict_on

from regraft.cli.verdicts import print_verdicts
from regraft.report.certificate import certificate
from regraft.verification import Verdict, verify
from regraft.verification.child.file_import import load_original
from regraft.verification.child.missing_modules import (
    _FINDER,
    MOST_MODULES,
    MissingName,
    missing_modules,
    without_missing_modules,
)

pytestmark = pytest.mark.usefixtures("here")

TEXT = """\
import torch
from torch import nn

import no_such_kernels.fused as kernels
from no_such_kernels import FastNorm, scan


class Gate(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x, weight: FastNorm | None = None):
        return self.linear(x) * torch.sigmoid(x)


class Scanned(nn.Module):
    def forward(self, x):
        return scan(x) + kernels.sums(x)
"""
GATE = "self.linear(x) * torch.sigmoid(x)"


def test_code_that_does_not_use_a_missing_module_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = verdict_on(tmp_path, TEXT, GATE, "torch.sigmoid(x) * self.linear(x)")
    assert verdict.status == "proved", verdict.reason
    assert verdict.evidence["missing modules"] == ["no_such_kernels"]
    sentence = "no_such_kernels; what uses it was not compared (install it, or name an interpreter"
    assert f"Not installed: {sentence}" in certificate("model.py", [verdict])
    print_verdicts([verdict])
    assert f"  not installed: {sentence}" in capsys.readouterr().out


def test_a_difference_beside_a_missing_module_has_a_reproducer(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, TEXT, GATE, f"{GATE} * 2")
    assert verdict.status == "refuted", verdict.reason
    script = [sys.executable, str(verdict.evidence["reproducer"])]
    run = subprocess.run(script, capture_output=True, text=True, check=False, timeout=120)
    assert (run.returncode, run.stderr) == (1, "")


def test_code_that_uses_a_missing_module_is_unproven_and_not_kept(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, TEXT, "scan(x) + kernels", "1.0 * scan(x) + kernels")
    assert verdict.status == "unproven"
    assert "No module named 'no_such_kernels': install it, or name an interpreter" in verdict.reason
    assert verdict.lacks_import


@pytest.mark.parametrize(
    "line",
    [
        "class Own(FastNorm): pass",
        "def own(x): return scan(x)\n\n\nVALUE = own(1)",
        "FLAG = 1 if scan else 2",
        "import missing_1, missing_2, missing_3",
        "from . import parts",
    ],
)
def test_a_file_that_needs_a_missing_module_at_once_does_not_import(
    line: str, tmp_path: Path
) -> None:
    text = TEXT.replace("class Gate", f"{line}\n\n\nclass Gate", 1)
    verdict = verdict_on(tmp_path, text, GATE, "torch.sigmoid(x) * self.linear(x)")
    assert verdict.status == "unproven"
    assert "the original does not import: " in verdict.reason
    assert not missing_modules()


def test_all_packages_that_a_file_misses_are_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").touch()
    lines = "import missing_1, json\nimport missing_2.part, neighbour\nfrom missing_3 import Base"
    text = TEXT.replace("class Gate", f"{lines}\n\n\nclass Own(FastNorm): pass\n\n\nclass Gate", 1)
    verdict = verdict_on(tmp_path, text, GATE, "torch.sigmoid(x) * self.linear(x)")
    packages = "no_such_kernels, missing_1, missing_2, missing_3"
    assert f": install {packages}, or name an interpreter that has them" in verdict.reason


def test_the_same_reason_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    reason = "the changed version does not import: ModuleNotFoundError: No module named 'absent'"
    evidence = {"reproducer": "reproducers/1.py"}
    verdicts = [
        Verdict("model.py", "Gate", (1,), "refuted", reason, evidence),
        Verdict("model.py", "Norm", (5,), "proved", "", {}),
        Verdict("model.py", "Other", (7,), "proved", "", {}),
        Verdict("model.py", "Scanned", (9,), "refuted", reason, evidence),
        Verdict("model.py", "Last", (9,), "refuted", reason, {"reproducer": "reproducers/2.py"}),
    ]
    print_verdicts(verdicts)
    assert capsys.readouterr().out.splitlines() == [
        f"model.py Gate, Scanned: refuted: {reason}",
        "  reproducer: reproducers/1.py",
        "model.py Norm: proved",
        "model.py Other: proved",
        f"model.py Last: refuted: {reason}",
        "  reproducer: reproducers/2.py",
    ]
    text = certificate("model.py", verdicts)
    assert text.count(reason) == text.count("reproducers/1.py") == 1
    assert f"**Gate**, **Scanned**, **Last** are refuted: {reason}" in text


def test_what_module_level_statements_make_of_a_missing_module_has_no_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_FINDER, "names", [])
    monkeypatch.syspath_prepend(tmp_path)
    words = "import no_such_words\n\nENGINE = no_such_words.make()(1)\n"
    (tmp_path / "words_of_numbers.py").write_text(words)
    lines = "import words_of_numbers\n\n\n@scan(width=2)\ndef own(x):\n    return x\n"
    path = tmp_path / "model.py"
    path.write_text(TEXT.replace("class Gate", f"{lines}\n\nclass Gate", 1))
    model: Any = load_original(path)
    assert missing_modules() == ("no_such_kernels", "no_such_words")
    assert model.Gate(2)(torch.ones(1, 2)).shape == (1, 2)
    for value in (model.own, model.words_of_numbers.ENGINE):
        with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_"):
            value(1)
    for name in ("no_such_kernels", "no_such_kernels.fused", "no_such_words", "words_of_numbers"):
        del sys.modules[name]


def test_a_module_that_only_the_changed_version_needs_is_not_stood_in_for(tmp_path: Path) -> None:
    changed = "torch.sigmoid(x) * self.linear(x)"
    text = TEXT.replace("import torch\n", "import torch\nimport math\n", 1)
    path = tmp_path / "model.py"
    path.write_text(text)
    new = text.replace("import math", "import no_such_maths").replace(GATE, changed)
    verdicts = verify(path, new.encode())
    assert all(verdict.status != "proved" for verdict in verdicts)
    assert any("the changed version does not import" in verdict.reason for verdict in verdicts)


def test_a_missing_name_has_no_use() -> None:
    name: Any = MissingName("absent")
    assert (name | None) is name and not hasattr(name, "kernel")
    for use in (lambda: name(1), lambda: bool(name), lambda: name + 1, lambda: isinstance(1, name)):
        with pytest.raises(ModuleNotFoundError, match="absent"):
            use()


def test_the_first_error_is_raised_where_too_many_modules_are_missing() -> None:
    counts = iter(range(MOST_MODULES + 1))

    def load() -> None:
        number = next(counts)
        raise ModuleNotFoundError(f"No module named 'absent_{number}'", name=f"absent_{number}")

    with pytest.raises(ModuleNotFoundError, match="absent_0"):
        without_missing_modules(load)
    assert not missing_modules()
