"""Every command of the README and of the guides runs as it stands there, and prints what the page
shows.

A page is read from top to bottom in a folder of its own. A fence `console` is a session: lines with
`$` are commands, the lines below them what they print, where `...` stands for any lines, or at
the end of a line for its rest. A command exits with 0, or as its comment says (`# exits with 1`).
Other fences without a language list commands, which run in a small repository with the files that
they name. A fence below a line that ends with the name of a file is this file.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import click
import pytest

from regraft.cli import main
from regraft.rules import lock_file

pytest.importorskip("torch")

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EXAMPLE = ROOT / "examples" / "own-repository"
TUTORIALS = ("get-started", "prove-a-change", "deploy", "write-a-rule", "configuration")
LISTS = ("README", "commands", "ci", "bench")
# commands that are not run, with the reason; of those in lists the options are checked
NOT_RUN = {
    "regraft bench targets.py:build --mode training --compile": "compiles for half a minute;"
    " tests/bench does",
    "regraft bench targets.py:build --packs liger --liger": "needs CUDA",
    "regraft bench targets.py:build --rounds 6 --select --packs torch/attention,torch/rotary,"
    "torch/rms-norm,adopter/bert-attention,torch/logits-cross-entropy": "measures for minutes;"
    " tests/bench does",
}
# on the page of all commands, where only the options are checked: other pages run such commands
RUN_ELSEWHERE = {
    "check --fix": "README",
    "undo": "README",
    "verify": "README, prove-a-change, ci",
    "driver": "prove-a-change",
    "profile": "get-started",
    "bench": "bench",
    "split": "deploy",
    "server": "waits for an editor; tests/server does",
    "mcp": "waits for a program; tests/server does",
}
# exit codes of listed commands, where they are others than 1 for findings and 0 for all else
STATUS = {
    "regraft check --baseline regraft.baseline.json src/": 0,  # all findings are accepted
}
# on the page of `bench`, finds what the rules find that were chosen before
CHECKS_LOCK = "regraft check src/"
FOLDER = "/home/you/work"  # stands on the pages for the folder in which the commands run
FENCE = re.compile(
    r"(?P<before>[^\n]*)\n*^(?P<ticks>`{3,})(?P<language>[^\n]*)\n(?P<text>.*?)^(?P=ticks)$",
    re.MULTILINE | re.DOTALL,
)
FILE_NAME = re.compile(r"`([\w./-]+\.\w+)`:$")
LISTED = re.compile(r"^(regraft .*?)(?:\s+#.*)?$", re.MULTILINE)
VARYING = (  # what differs from run to run, and what stands in its place
    (re.compile(r"\d[\d.]* ?(ms|s|µs|MiB|%)(?!\w)"), r"# \1"),
    (re.compile(r"\(\d[\d.]*(?: to |-)\d[\d.]*%?\)|\(\d[\d.]* to # %\)"), "(#)"),
    (re.compile(r"\d[\d.]* \(#\) times"), "# (#) times"),
    (re.compile(r"loss [\d.]+"), "loss #"),
    # a busy machine may measure that a network became slower, which is then said
    (re.compile(r"^a call takes .*, slower than PyTorch's .*\n", re.MULTILINE), ""),
    (re.compile(r"[ \t]+"), " "),
)


@dataclass(frozen=True)
class Step:
    """A file to write, or a command to run; `status` is its exit code, `output` what it prints."""

    kind: Literal["file", "session", "listed"]
    text: str
    path: str = ""
    output: str = ""
    status: int = 0


def page_text(page: str) -> str:
    """Return the text of a page."""
    path = ROOT / "README.md" if page == "README" else DOCS / f"{page}.md"
    return path.read_text("utf-8")


def steps(page: str) -> Iterator[Step]:
    """Yield the files and commands of a page in their order."""
    for fence in FENCE.finditer(page_text(page)):
        name = FILE_NAME.search(fence["before"].strip())
        if name:
            yield Step("file", fence["text"], path=name[1])
        elif fence["language"] == "console":
            for part in re.split(r"^\$ ", fence["text"], flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                status = re.search(r"# exits with (\d)", command)
                yield Step(
                    "session", command, output=output, status=int(status[1]) if status else 0
                )
        elif not fence["language"]:
            for command in LISTED.findall(fence["text"]):
                finds = command.startswith("regraft check") and "--fix" not in command
                yield Step("listed", command, status=STATUS.get(command, int(finds)))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Return an environment with `regraft` and `python` of the interpreter that runs the tests."""
    programs = tmp_path_factory.mktemp("programs")
    for name, arguments in (("regraft", "-m regraft"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (programs / name).chmod(0o755)
    who = {
        f"GIT_{role}_{key}": "test@test"
        for role in ("AUTHOR", "COMMITTER")
        for key in ("NAME", "EMAIL")
    }
    return {
        **os.environ,
        **who,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "REGRAFT_CACHE_DIR": str(tmp_path_factory.mktemp("cache")),
        "PYTEST_ADDOPTS": "-p no:cacheprovider",
        "COLUMNS": "80",
    }


def normalized(text: str) -> str:
    """Return a text without what differs from run to run."""
    for pattern, replacement in VARYING:
        text = pattern.sub(replacement, text)
    return "\n".join(line.rstrip() for line in text.splitlines())


def output_pattern(expected: str) -> re.Pattern[str]:
    """Return the pattern of a normalized output that agrees with what a page shows."""
    parts = []
    for line in expected.splitlines():
        if line == "...":
            parts.append(r"(?:[^\n]*\n)*?")
        elif line.endswith("..."):
            parts.append(re.escape(line.removesuffix("...")) + r"[^\n]*\n")
        else:
            parts.append(re.escape(line) + r"\n")
    return re.compile("".join(parts))


def check_output(expected: str, run: subprocess.CompletedProcess[str]) -> None:
    """Fail where an output is not the one that a page shows; the page shows both streams in one."""
    stdout, stderr = normalized(run.stdout), normalized(run.stderr)
    shown = normalized(expected).splitlines()
    errors = {line for line in stderr.splitlines() if line not in stdout.splitlines()}
    expected_stdout = "\n".join(line for line in shown if line not in errors)
    assert output_pattern(expected_stdout).fullmatch(f"{stdout}\n" if stdout else ""), (
        f"the page shows\n{expected}\nthe command printed\n{run.stdout}\n{run.stderr}"
    )


def run_step(step: Step, folder: Path, environment: Mapping[str, str]) -> None:
    """Write a file of a page, or run a command of it; fail where it ends otherwise."""
    if step.kind == "file":
        (folder / step.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / step.path).write_text(step.text, "utf-8")
        return
    run = subprocess.run(
        ["bash", "-c", step.text],
        cwd=folder,
        env=dict(environment),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == step.status, f"{step.text}\n{run.stdout}\n{run.stderr}"
    if step.kind == "session":
        for stream in ("stdout", "stderr"):
            setattr(run, stream, getattr(run, stream).replace(f"{folder}", FOLDER))
        check_output(step.output, run)


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS)
def test_a_tutorial_runs_as_it_stands(
    page: str, tmp_path: Path, environment: Mapping[str, str]
) -> None:
    folder = tmp_path / "storyteller"
    if "examples/own-repository" in page_text(page):
        ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache")
        shutil.copytree(EXAMPLE, folder, ignore=ignored)
    else:
        folder.mkdir()
    if page != "configuration":  # no configuration above the folder counts, nor a GPU
        (folder / "regraft.toml").write_text('target = "cpu"\n')
    for step in steps(page):
        if step.text not in NOT_RUN:
            run_step(step, folder, environment)


MODEL = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, x):
        h = self.dense(x)
        return h * torch.sigmoid(h)
"""
ACTIVATION = """\
import torch


def silu(x: torch.Tensor) -> torch.Tensor:
    gate = torch.sigmoid(x)
    return x * gate
"""
SUMS = """\
import torch


def add_rows(x: torch.Tensor) -> torch.Tensor:
    total = x.sum(0)
    return total
"""
NETWORK = """\
import torch
from torch import nn


class Gate(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x + 1
        return x - 1


def build():
    return Gate().eval(), [(torch.ones(3),), (-torch.ones(3),)]
"""
TARGETS = """\
import torch
from model import Block


def build():
    return Block(16), (torch.randn(8192, 16),)
"""


@pytest.fixture
def repository(tmp_path: Path, environment: Mapping[str, str]) -> Path:
    """Return a repository with the files that lists of commands name."""
    renamed = MODEL.replace("h = ", "hidden = ").replace(
        "h * torch.sigmoid(h)", "hidden * torch.sigmoid(hidden)"
    )
    files = {
        "regraft.toml": 'target = "cpu"\n',
        "model.py": MODEL,
        "src/models/activation.py": ACTIVATION,
        "src/models/sums.py": SUMS,
        "original.py": MODEL,
        "changed.py": renamed,
        "targets.py": TARGETS,
        "net.py": NETWORK,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def git(*arguments: str) -> str:
        return subprocess.check_output(
            ["git", *arguments], cwd=tmp_path, env=dict(environment), text=True
        )

    git("init", "-q", "-b", "main", ".")
    git("add", "-A")
    git("commit", "-qm", "Start")
    git("update-ref", "refs/remotes/origin/main", "main")
    (tmp_path / "src/models/activation.py").write_text(ACTIVATION.replace("gate", "factor"))
    (tmp_path / "change.diff").write_text(git("diff"))
    git("commit", "-qam", "Rename a variable")
    git("checkout", "-q", "HEAD~1", "--", "src")
    (tmp_path / "src/models/sums.py").write_text(SUMS.replace("total", "result"))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("page", LISTS)
def test_listed_commands_run(
    page: str, repository: Path, environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    listed = [step for step in steps(page) if step.kind == "listed"]
    assert listed
    for step in listed:
        words = step.text.removeprefix("regraft ")
        is_elsewhere = page == "commands" and words.startswith(tuple(RUN_ELSEWHERE))
        if is_elsewhere or step.text in NOT_RUN:
            check_options(step.text)
        else:
            # the benchmark before measured, and on a busy machine no rule may have gained
            follows_lock = page == "bench" and step.text == CHECKS_LOCK
            is_empty = follows_lock and not lock_file.read(repository / lock_file.NAME).rules
            run_step(replace(step, status=0) if is_empty else step, repository, environment)


def check_options(command: str) -> None:
    """Raise an error of click where a command has an argument or an option that does not exist."""
    _, name, *arguments = shlex.split(command)
    command_of_name = main.get_command(click.Context(main), name)
    assert command_of_name, command
    command_of_name.make_context(name, arguments)


def test_what_is_not_run_stands_on_a_page() -> None:
    every = {step.text for page in (*TUTORIALS, *LISTS) for step in steps(page)}
    assert {*NOT_RUN, *STATUS, CHECKS_LOCK} <= every
    assert all(any(f"regraft {name}" in text for text in every) for name in RUN_ELSEWHERE)


SPAN = re.compile(r"`((?:regraft|python) [^`\n]+)`")
LINE = re.compile(r"^(?:\$ )?((?:regraft|python) [^\n]+)$", re.MULTILINE)
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "editors/vscode/README.md")),
    *sorted(DOCS.glob("**/*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
    *sorted((ROOT / "src/regraft/rules/packs").glob("*/*.md")),
]


def mentioned_commands(path: Path) -> list[str]:
    """Return the commands in the text and in the fences of a page, without comments."""
    text = path.read_text("utf-8")
    fences = "".join(
        fence["text"] for fence in FENCE.finditer(text) if fence["language"] in ("", "console")
    )
    commands = SPAN.findall(FENCE.sub("", text)) + LINE.findall(fences)
    return [re.split(r"\s+#|;| > | \|", command)[0].strip() for command in commands]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_mentioned_command_has_such_options(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those in the middle of a sentence, which may leave out what they are about."""
    monkeypatch.chdir(tmp_path)
    for folder in ("DIRECTORY", "FOLDER", "rules"):
        (tmp_path / folder).mkdir()
    for command in mentioned_commands(path):
        program, *words = shlex.split(command.replace("…", "X"))
        if program == "regraft" and words[0].islower():
            try:
                check_options(command)
            except (click.MissingParameter, click.BadOptionUsage, click.exceptions.Exit):
                continue  # the sentence says what it is about
            except click.BadParameter:
                assert "NAME" in words, command
        elif words and words[0].startswith(("benchmarks/", "scripts/")):
            assert (ROOT / words[0]).is_file(), command
