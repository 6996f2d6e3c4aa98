"""Test that a driver of the user which is of no use is an error, and not left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from regraft.cli import main
from regraft.verification import VerifyError, verify

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


def helper(module):
    raise RuntimeError("no weights here")


def fails(module):
    return helper(module)


def ends(module):
    raise SystemExit(3)


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
CHANGED = MODEL.replace("self.fc(x) * 2", "2 * self.fc(x)").encode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a model's file, with drivers beside it."""
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "drivers.py").write_text(DRIVERS)
    (tmp_path / "broken.py").write_text("import no_such_module_here\n\ndef build(module): pass\n")
    return tmp_path / "model.py"


@pytest.mark.parametrize(
    ("driver", "message"),
    [
        ("drivers.py:fails", "drivers.py:5: the driver raises RuntimeError: no weights here; "),
        ("drivers:fails", "drivers.py:5: the driver raises RuntimeError: no weights here; "),
        ("drivers.py:ends", "drivers.py:13: the driver raises SystemExit: 3; "),
        ("drivers.py:nothing", "drivers.py:nothing: it returns a NoneType, not (model, calls); "),
        ("drivers.py:misspelt", "has no attribute 'Modle'; correct the driver, or verify without"),
        ("drivers.py:too_narrow", "the original raises in all of its calls: RuntimeError: mat1"),
        ("drivers.py:no_calls", "its list of calls is empty; correct the driver"),
        ("drivers.py:no_list", "its calls are a Tensor, not a list of calls; correct the driver"),
        ("broken.py:build", "broken.py:1: the driver cannot be loaded: ModuleNotFoundError: "),
    ],
)
def test_a_driver_that_fails_with_the_original_is_an_error(
    path: Path, driver: str, message: str
) -> None:
    with pytest.raises(VerifyError) as error:
        verify(path, CHANGED, driver=driver, effort="low")
    assert message in str(error.value)


def test_a_driver_some_of_whose_calls_fail_is_of_use(path: Path) -> None:
    (verdict,) = verify(path, CHANGED, driver="drivers.py:right", effort="low")
    assert verdict.status == "proved", verdict.reason


def test_a_driver_that_fails_with_the_changed_version_alone_is_a_finding(path: Path) -> None:
    changed = MODEL.replace("width=8", "size=8").replace("width, width", "size, size").encode()
    text = DRIVERS.replace("module.Model()", "module.Model(width=8)")
    path.with_name("drivers.py").write_text(text)
    (verdict,) = verify(path, changed, driver="drivers.py:right", effort="low")
    assert verdict.status == "refuted"


def test_what_is_not_there_is_said_before_anything_runs(path: Path) -> None:
    started: list[None] = []
    for driver, message in (
        ("drivers.py:rihgt", "drivers.py has no function rihgt; did you mean right?"),
        ("driver.py:right", "there is no file driver.py; did you mean drivers.py?"),
    ):
        with pytest.raises(VerifyError, match=re.escape(message)):
            verify(path, CHANGED, driver=driver, on_start=lambda: started.append(None))
    assert not started


@pytest.mark.slow
def test_the_commands_exit_with_2_and_write_nothing(path: Path) -> None:
    text = MODEL.replace("self.fc(x) * 2", "torch.softmax(self.fc(x), -1)")
    path.write_text(f"import torch\n{text}")
    path.with_name("changed.py").write_text(MODEL)
    options = ["--driver", "drivers.py:fails", "--no-cache"]
    for command in (["verify", "model.py", "changed.py"], ["check", "--all", "--fix", "model.py"]):
        outcome = CliRunner().invoke(main, [*command, *options])
        assert outcome.exit_code == 2
        assert "error: drivers.py:5: the driver raises RuntimeError" in outcome.output
    assert path.read_text() == f"import torch\n{text}"


def test_a_changed_file_that_does_not_parse_is_named(path: Path) -> None:
    path.with_name("broken.py").write_text("def f(:\n")
    outcome = CliRunner().invoke(main, ["verify", "model.py", "broken.py"])
    assert outcome.exit_code == 2 and "broken.py:1:7: does not parse" in outcome.output
