"""Test that a kept verdict counts only while all that its run read is as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from regraft.verification import Verdict
from regraft.verification.read_file_states import Reads, are_as_they_were
from regraft.verification.verdict_cache import verify_with_cache

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("here")

MODEL = """\
import torch
from torch import nn

from factors import factor


class Model(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        return self.fc(x) * 2.0
"""
FROM_MODULE = "def factor():\n    return 2.0\n"
FROM_DATA = """\
import json
from pathlib import Path

STORED = json.loads(Path(__file__).with_name("data.json").read_text())


def factor():
    return STORED
"""


def status_of(folder: Path, path: Path) -> str:
    """Return the status of the edit that takes the factor from another module, from the cache if
    its entry counts."""
    changed = MODEL.replace("* 2.0", "* factor()").encode()
    (verdict,) = verify_with_cache(path, changed, root=folder / "cache")
    return verdict.status


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "edited", "before", "after"),
    [
        (FROM_MODULE, "factors.py", FROM_MODULE, FROM_MODULE.replace("2.0", "3.0")),
        (FROM_DATA, "data.json", "2.0", "3.0"),
    ],
)
def test_a_change_of_what_the_run_read_is_noticed(
    tmp_path: Path, module: str, edited: str, before: str, after: str
) -> None:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    (tmp_path / "factors.py").write_text(module)
    (tmp_path / edited).write_text(before)
    assert status_of(tmp_path, path) == "proved"
    (tmp_path / edited).write_text(after)
    assert status_of(tmp_path, path) == "refuted"


@pytest.mark.slow
def test_a_failed_import_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    changed = MODEL.replace("* 2.0", "* factor()").encode()
    (verdict,) = verify_with_cache(path, changed, root=tmp_path / "cache")
    assert verdict.lacks_import, verdict.reason
    (tmp_path / "factors.py").write_text(FROM_MODULE)
    assert status_of(tmp_path, path) == "proved"


def test_states_tell_contents_and_packages(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    file, missing = tmp_path / "a.txt", tmp_path / "b.txt"
    file.write_text("a")
    states = Reads((str(file), str(missing)), (str(tmp_path / "site"),)).states()
    os.utime(file, (1, 1))
    assert are_as_they_were(states)
    (tmp_path / "site" / "einops-0.8.dist-info").mkdir()
    assert not are_as_they_were(states)
    assert are_as_they_were({str(missing): states[str(missing)]})
    missing.write_text("now it is there")
    assert not are_as_they_were({str(missing): states[str(missing)]})


def test_a_verdict_without_an_import_says_so() -> None:
    reason = "the original does not import: ModuleNotFoundError: No module named 'einops'"
    assert Verdict("model.py", "Model", (1, 2), "unproven", reason, {}).lacks_import
