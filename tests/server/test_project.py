"""Test that servers read a project as `regraft check` does."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from command_line import regraft
from regraft.rules import load_rules
from regraft.rules.lock_file import Lock, pin_rule, write
from regraft.scanning import FileSearch, check_file
from regraft.server.project import Projects, RuleChoice, project_of

CODE = """import torch


def gate(x):
    return x * torch.sigmoid(x)


def logs(x):
    return torch.log(torch.softmax(x, -1))
"""


def checked(folder: Path, *options: str) -> list[str]:
    """Return the rules that a check in a folder shows, with their status."""
    document = regraft("check", ".", "--output-format", "json", *options, cwd=folder).stdout
    return [
        (f"{finding['rule']} {finding['status']}") for finding in json.loads(document)["findings"]
    ]


def served(folder: Path, choice: RuleChoice = RuleChoice()) -> list[str]:
    """Return the same as a server shows it."""
    file = folder / "model.py"
    project = project_of(file, folder, choice)
    assert not project.errors, project.errors
    rules = project.rules_in(file)
    report = project.shown(check_file(file, rules), rules)
    return [
        f"{finding.rule.id} {'fixable' if finding.fixable else 'withheld'}"
        for finding in report.findings
    ]


@pytest.mark.parametrize(
    "configuration",
    [
        "",
        'ignore = ["silu"]',
        'select = ["torch"]\nunsafe = true',
        'per-file-ignores = { "model.py" = ["silu"] }',
        'target = "cuda"',
    ],
)
def test_settings_choose_the_rules_of_a_check(configuration: str, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(CODE)
    (tmp_path / "regraft.toml").write_text(configuration)
    assert served(tmp_path) == checked(tmp_path)


def test_a_choice_stands_above_the_settings(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(CODE)
    (tmp_path / "regraft.toml").write_text('ignore = ["silu"]')
    choice = RuleChoice(select=("torch",), unsafe=True)
    assert served(tmp_path, choice) == checked(tmp_path, "--select", "torch", "--unsafe")
    assert served(tmp_path, RuleChoice(applies_all=True)) == checked(tmp_path, "--all")


def test_a_lock_file_chooses_the_rules_of_a_check(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(CODE)
    (rule,), _ = load_rules(["torch/log-softmax"])
    lock = Lock("m:f", "fastest", "inference", "cpu", "", "", (pin_rule(rule, {}),))
    write(tmp_path / "regraft.lock.toml", lock)
    assert served(tmp_path) == checked(tmp_path) == ["torch/log-softmax withheld"]
    write(tmp_path / "regraft.lock.toml", Lock("m:f", "", "", "", "", "", ()))
    assert served(tmp_path) == checked(tmp_path) == []
    (tmp_path / "regraft.lock.toml").write_text("wrong")
    assert project_of(tmp_path / "model.py", tmp_path).errors


def test_a_file_is_read_where_a_check_of_the_folder_reads_it(tmp_path: Path) -> None:
    names = [
        *("a.py", ".hidden/a.py", "build/a.py", "env/a.py", "deep/er/a.py", "deep/er/b.py"),
        *("ignored/a.py", "ignored/kept.py", "old/a.py", "old/new/a.py", "deep/old_a.py"),
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    (tmp_path / ".gitignore").write_text("ignored/*\n!kept.py\n")
    (tmp_path / "deep" / ".gitignore").write_text("b.py\n")
    (tmp_path / "regraft.toml").write_text('exclude = ["/old/", "old_*.py"]')
    project = project_of(tmp_path / "a.py", tmp_path)
    search = FileSearch(project.settings.exclude)
    paths = [path for path in search.python_files([tmp_path]) if isinstance(path, Path)]
    files = {path.relative_to(tmp_path).as_posix() for path in paths}
    assert {name for name in names if project.reads(tmp_path / name)} == files
    assert files == {"a.py", "deep/er/a.py", "ignored/kept.py"}
    assert project.reads(tmp_path.parent / "elsewhere.py")


def test_a_project_is_read_again_when_its_files_change(tmp_path: Path) -> None:
    projects, file, settings = Projects(), tmp_path / "model.py", tmp_path / "regraft.toml"
    first = projects.project_of(file, tmp_path)
    assert projects.project_of(tmp_path / "other.py", tmp_path) is first
    settings.write_text('ignore = ["silu"]')
    second = projects.project_of(file, tmp_path)
    assert len(second.rules) == len(first.rules) - 1
    settings.write_text('ignore = ["gelu", "silu"]')
    os.utime(settings, ns=(time.time_ns(), time.time_ns() + 1))
    assert len(projects.project_of(file, tmp_path).rules) == len(first.rules) - 2
    settings.unlink()
    settings.symlink_to(settings.name)  # a link to itself cannot be read
    assert projects.project_of(file, tmp_path).errors
    settings.unlink()
    assert not projects.project_of(file, tmp_path).errors
