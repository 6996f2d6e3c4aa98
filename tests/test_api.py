"""The functions that programs call, and their documentation."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import regraft

GUIDE = Path(__file__).parents[1] / "docs" / "api.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
SOFTMAX = """\
import torch
from torch import nn


class Scores(nn.Module):
    def forward(self, query, key):
        return torch.softmax(query @ key, -1)
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(SOFTMAX)
    return path


@pytest.mark.slow
def test_the_guide_runs_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(BLOCKS[0])
    (tmp_path / "program.py").write_text("\n".join(BLOCKS[1:]))
    run = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "model.py:13: torch/attention, pays" in run.stdout
    assert "Attention proved" in run.stdout
    assert "Attention.forward torch/attention" in run.stdout
    assert re.search(r"torch/attention against .*times as fast", run.stdout)


def test_checking_needs_no_torch_and_writes_nothing(model: Path) -> None:
    program = (
        "import sys, regraft\n"
        f"result = regraft.check({str(model)!r}, select=['softmax'], configuration=False)\n"
        "assert 'torch' not in sys.modules\n"
        "print(*(finding.rule.id for finding in result.findings), *result.rewrites)\n"
    )
    printed = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert printed.split() == ["adopter/softmax", str(model)]
    assert model.read_text() == SOFTMAX


def test_a_text_is_checked_like_a_file(model: Path) -> None:
    of_file = regraft.check(model, select=["softmax"])
    of_text = regraft.check(source=SOFTMAX, filename="text.py", select=["softmax"])
    assert of_text.rewrites["text.py"] == of_file.rewrites[str(model)]
    assert [finding.file for finding in of_text.findings] == ["text.py"]


def test_what_gains_nothing_is_counted_and_not_rewritten(model: Path) -> None:
    by_default = regraft.check(model, target="cpu")
    assert (by_default.findings, by_default.gainless, dict(by_default.rewrites)) == ((), 1, {})
    assert regraft.check(model, target="cpu", apply_all=True).rewrites


def test_the_nearest_configuration_holds_below_the_parameters(model: Path) -> None:
    (model.parent / "regraft.toml").write_text('select = ["softmax"]\n')
    assert regraft.check(model).rewrites
    assert not regraft.check(model, configuration=False, target="cpu").findings
    assert not regraft.check(model, select=["gelu"]).findings


def test_rules_ignored_in_a_file_are_not_applied_there(model: Path) -> None:
    settings = model.parent / "other.toml"
    settings.write_text('[per-file-ignores]\n"model.py" = ["softmax"]\n')
    result = regraft.check(model, apply_all=True, configuration=settings)
    assert (result.findings, dict(result.rewrites)) == ((), {})


def test_a_file_that_cannot_be_read_is_an_error_of_the_result(tmp_path: Path, model: Path) -> None:
    (tmp_path / "broken.py").write_text("x = (\n")
    result = regraft.check([tmp_path, tmp_path / "missing"], select=["softmax"])
    assert [str(error) for error in result.errors] == [
        f"{tmp_path}/broken.py:1:5: syntax error: '(' was never closed",
        f"{tmp_path}/missing: no such file or directory",
    ]
    assert list(result.rewrites) == [str(model)]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "check takes paths or the text `source`, one of the two"),
        ({"paths": "a.py", "source": ""}, "check takes paths or the text"),
        ({"source": "", "select": ["sofmax"]}, "sofmax: no rule has this name"),
        ({"source": "", "configuration": "missing.toml"}, "cannot be read"),
    ],
)
def test_mistakes_of_the_caller_raise(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        regraft.check(**parameters)  # type: ignore[arg-type]


@pytest.mark.slow
def test_verify_takes_a_text_or_a_file(model: Path) -> None:
    changed = model.with_name("changed.py")
    changed.write_text(SOFTMAX.replace("-1", "-2"))
    for version in (changed, changed.read_bytes()):
        (verdict,) = regraft.verify(model, version, effort="low")
        assert (verdict.definition, verdict.status) == ("Scores", "refuted")


def test_mistakes_in_a_verification_raise(model: Path) -> None:
    with pytest.raises(ValueError, match="effort is 'lots'; there are low, default, high"):
        regraft.verify(model, b"", effort="lots")  # type: ignore[arg-type]
    with pytest.raises(regraft.VerifyError, match=r"model.py:1:5: does not parse"):
        regraft.verify(model, b"x = (")
    with pytest.raises(FileNotFoundError):
        regraft.verify(model, "missing.py")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"mode": "both", "goal": "fastest"}, "a goal chooses for one mode"),
        ({"limit": "2GiB"}, "a limit goes with a goal"),
        ({"goal": "fastest", "limit": "2 parsecs"}, "is not a number above 0"),
        ({"goal": "slowest"}, "the goal is 'slowest'; there are fastest and smallest"),
        ({"rounds": 1}, "rounds is 1; an interval needs at least"),
        ({"select": ["nothing"]}, "nothing: no rule has this name"),
        ({"mode": "dreaming"}, "mode is 'dreaming'"),
    ],
)
def test_mistakes_in_a_benchmark_raise(parameters: dict[str, object], message: str) -> None:
    from torch import nn, ones

    with pytest.raises(ValueError, match=re.escape(message)):
        regraft.bench(nn.Linear(1, 1), ones(1, 1), **parameters)  # type: ignore[arg-type]


def test_the_types_are_those_of_the_functions() -> None:
    """`__init__.pyi` and the names that `__init__.py` exports on first use agree."""
    stub = Path(regraft.__file__).with_name("__init__.pyi").read_text("utf-8")
    pairs = re.findall(r"from regraft\.(\w+) import (\w+) as \2", stub)
    exported_names: list[str] = vars(regraft)["__all__"]
    assert sorted(name for _, name in pairs) == sorted(exported_names)
    for module, name in pairs:
        exported = getattr(regraft, name)
        assert exported.__module__.startswith(f"regraft.{module}")
    with pytest.raises(AttributeError, match="has no attribute 'chekc'"):
        regraft.chekc  # type: ignore[attr-defined]  # noqa: B018


def test_a_single_selector_needs_no_list(model: Path, tmp_path: Path) -> None:
    result = regraft.check(model, select="softmax", ignore="gelu", configuration=False)
    assert [finding.rule.id for finding in result.findings] == ["adopter/softmax"]
    with pytest.raises(ValueError, match="unknown in keep: 'fxx'"):
        regraft.verify(model, SOFTMAX.replace("-1", "1").encode(), keep="fxx")


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"target": "gpu"}, "target is 'gpu'; there are auto, cpu, cuda"),
        ({"rules": "missing"}, "missing: there is no such directory with rules"),
        ({"rules": ["missing"]}, "missing: there is no such directory with rules"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any], words: str, model: Path) -> None:
    with pytest.raises(ValueError, match=words):
        regraft.check(model, **parameters)


def test_a_text_without_an_encoding_does_not_parse(model: Path) -> None:
    (error,) = regraft.check(source="x = '\ud800'\n").errors
    assert "not valid utf-8" in error.message
    changed = b"# \xe9\n" + SOFTMAX.replace("-1", "1").encode()
    with pytest.raises(regraft.VerifyError, match="does not parse"):
        regraft.verify(model, changed)
