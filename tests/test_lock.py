"""Test regraft.lock.toml: writing, reading, and the locks that do not fit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from regraft.cli import main
from regraft.rules import BUILT_IN, load_rules
from regraft.rules.lock_file import (
    NAME,
    Lock,
    LockError,
    locked_rules,
    nearest,
    notes,
    pin_rule,
    read,
    write,
)

CODE = """\
import torch


def f(x):
    return torch.softmax(x, dim=-1)


def g(x):
    return x * torch.sigmoid(x)
"""


def lock(*names: str) -> Lock:
    """Return a lock of rules."""
    rules = load_rules(list(names))[0] if names else ()
    return Lock(
        target='dir "a"\\b.py:build',
        goal="fastest",
        mode="training",
        device="cpu",
        machine="Prozessor™",
        torch="2.13.0",
        rules=tuple(
            pin_rule(rule, {"speed": [1.1, 1.25, 1.5], "peak_bytes": 10}) for rule in rules
        ),
        measured={"seconds": 0.5},
    )


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, a project with a model."""
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "model.py").write_text(CODE)
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("names", [(), ("torch/gelu",), ("torch", "adopter/softmax")])
def test_what_is_written_is_read(tmp_path: Path, names: tuple[str, ...]) -> None:
    path = tmp_path / NAME
    write(path, lock(*names))
    assert read(path) == lock(*names)
    rules, problems = locked_rules(path, read(path))
    assert [rule.id for rule in rules] == [rule.id for rule in lock(*names).rules] and not problems


def test_the_nearest_lock_is_here_or_in_the_project(project: Path) -> None:
    assert nearest(project / "src") is None
    write(project / NAME, lock())
    assert nearest(project) == nearest(project / "src") == (project / NAME).resolve()
    (project / "src" / "pyproject.toml").touch()
    assert nearest(project / "src") is None  # another project
    (project / "src" / NAME).touch()
    assert nearest(project / "src") == (project / "src" / NAME).resolve()


def test_a_lock_of_no_project_counts_in_its_own_folder_only(tmp_path: Path) -> None:
    (tmp_path / NAME).touch()
    (tmp_path / "below").mkdir()
    assert nearest(tmp_path) is not None and nearest(tmp_path / "below") is None


GOOD = (
    'format = 1\nregraft = "0"\ntorch = "2"\ndevice = "cpu"\nmachine = ""\ntarget = "a:b"\ngoal ='
    ' "fastest"\n'
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"rule = [", "is not TOML"),
        (b"\xff", "is not TOML"),
        (b"", "format None is unknown"),
        (b"format = 2", "format 2 is unknown, this version reads format = 1"),
        (GOOD.encode(), "mode is missing or not a text"),
        ((GOOD + "mode = 3\n").encode(), "mode is missing or not a text"),
        ((GOOD + 'mode = ""\n').encode(), "`rule` has to be a list of tables"),
        ((GOOD + 'mode = ""\nrule = [1]\n').encode(), "every rule needs the texts id and sha256"),
        (
            (GOOD + 'mode = ""\n[[rule]]\nid = "torch/gelu"\n').encode(),
            "every rule needs the texts id and sha256",
        ),
    ],
)
def test_malformed_locks(project: Path, text: bytes, message: str) -> None:
    (project / NAME).write_bytes(text)
    with pytest.raises(LockError, match=message):
        read(project / NAME)
    result = check()
    assert result.exit_code == 2 and message in result.stderr and "Traceback" not in result.output
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_lock_that_is_not_there(project: Path) -> None:
    assert "cannot be read: No such file" in check("--lock", "other.toml").stderr


def check(*arguments: str) -> Result:
    """Run `regraft check` on the model."""
    return CliRunner().invoke(main, ["check", "--output-format", "json", "model.py", *arguments])


def finding_rules(result: Result) -> list[str]:
    """Return the rules of the findings of a run."""
    return [finding["rule"] for finding in json.loads(result.stdout)["findings"]]


def test_check_applies_the_rules_of_the_lock(project: Path) -> None:
    assert finding_rules(check("--all")) == ["adopter/softmax", "torch/silu"]
    write(project / NAME, lock("torch/silu"))
    result = check()
    assert (
        finding_rules(result) == ["torch/silu"] and "1 rule, fastest in training" in result.stderr
    )
    assert (
        finding_rules(check("--no-lock", "--all"))
        == finding_rules(check("--ignore", "liger", "--all"))
        == finding_rules(check("--all"))
        == ["adopter/softmax", "torch/silu"]
    )
    assert finding_rules(check("--select", "softmax")) == ["adopter/softmax"]
    (project / NAME).rename(project / "other.toml")
    assert finding_rules(check("--lock", "other.toml")) == ["torch/silu"]


def test_a_lock_without_rules_finds_nothing(project: Path) -> None:
    write(project / NAME, lock())
    result = check()
    assert finding_rules(result) == [] and result.exit_code == 0 and "no rule" in result.stderr


@pytest.mark.parametrize(
    "options", [["--select", "torch"], ["--ignore", "torch"], ["--all"], ["--no-lock"]]
)
def test_a_lock_and_a_choice_exclude_each_other(project: Path, options: list[str]) -> None:
    write(project / NAME, lock("torch/silu"))
    result = check("--lock", NAME, *options)
    assert result.exit_code == 2 and "--lock excludes" in result.stderr


def changed(folder: Path, change: Callable[[Path], object]) -> Path:
    """Return a copy of the pack torch with one changed rule."""
    shutil.copytree(BUILT_IN / "torch", folder / "rules" / "torch")
    change(folder / "rules" / "torch" / "silu.rule")
    return folder / "rules"


def test_a_rule_that_is_not_the_measured_one(project: Path) -> None:
    write(project / NAME, lock("torch/silu"))
    rules = changed(project, lambda path: path.write_text(path.read_text() + "\n"))
    result = check("--rules", str(rules))
    assert result.exit_code == 2
    assert (
        "the rule torch/silu is not the one that was measured; measure again: regraft bench"
        in result.stderr
    )


def test_a_rule_that_is_gone(project: Path) -> None:
    write(
        project / NAME,
        replace(lock("torch/silu"), rules=(replace(lock("torch/silu").rules[0], id="torch/gone"),)),
    )
    result = check()
    assert result.exit_code == 2 and "there is no rule torch/gone any more" in result.stderr


def test_other_versions_and_devices_are_noted() -> None:
    older = replace(lock(), regraft="0.0.0")
    assert next(iter(notes(older, "2.13.0", "cpu"))).startswith("measured with Regraft 0.0.0")
    assert list(notes(lock(), "2.14.0", "cuda")) == [
        "measured with PyTorch 2.13.0, here is 2.14.0",
        "measured with device cpu, here is cuda",
    ]
    assert not list(notes(lock(), "2.13.0", "cpu")) and not list(notes(lock()))
