"""Test that a verdict says why the driver of the user compared nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from regraft.cli import main
from regraft.report.certificate import certificate
from regraft.verification import verify

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("here")

MODEL = """\
from torch import nn


class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        return self.fc(x) * 2
"""
DRIVERS = """\
import torch


def fails(module):
    raise RuntimeError("no weights here")


def nothing(module):
    return None


def misspelt(module):
    return module.Modle(), [(torch.randn(2, 8),)]


def too_narrow(module):
    return module.Model(), [(torch.randn(2, 7),)]


def no_calls(module):
    return module.Model(), []


def no_list(module):
    return module.Model(), torch.randn(2, 8)


def right(module):
    return module.Model(), [(torch.randn(2, 7),), (torch.randn(2, 8),)]
"""


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("fails", "drivers.py:fails raises RuntimeError: no weights here"),
        ("nothing", "it returns a NoneType, not (model, calls)"),
        ("misspelt", "has no attribute 'Modle'"),
        ("too_narrow", "the original raises in every call of drivers.py:too_narrow"),
        ("no_calls", "its list of calls is empty"),
        ("no_list", "its calls are a Tensor, not a list of calls"),
        ("right", ""),
    ],
)
def test_a_failing_driver_is_part_of_the_verdict(
    tmp_path: Path, function: str, reason: str
) -> None:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    (tmp_path / "drivers.py").write_text(DRIVERS)
    changed = MODEL.replace("self.fc(x) * 2", "2 * self.fc(x)").encode()
    (verdict,) = verify(path, changed, driver=f"drivers.py:{function}", effort="low")
    assert verdict.status == "proved"
    assert reason in str(verdict.evidence.get("driver failure", ""))
    assert (reason in certificate("model.py", [verdict])) or not reason


def test_the_command_says_it_and_names_the_file_that_does_not_parse(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "changed.py").write_text(MODEL.replace("* 2", "* 2.0"))
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "drivers.py").write_text(DRIVERS)
    options = ["--driver", "drivers.py:fails", "--effort", "low", "--no-cache"]
    outcome = CliRunner().invoke(main, ["verify", "model.py", "changed.py", *options])
    assert "driver failed: drivers.py:fails raises RuntimeError" in outcome.output
    outcome = CliRunner().invoke(main, ["verify", "model.py", "broken.py"])
    assert outcome.exit_code == 2 and "broken.py:1:7: does not parse" in outcome.output
