"""Test what other programs call: the script of the GitHub Action and the command of the pre-commit
hook; and the list of rules."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import regraft

Write = Callable[[str, str], Path]
ROOT = Path(__file__).parent.parent
CODE = "import torch\n\n\ndef weights(x):\n    return torch.softmax(x, dim=-1)\n"
ALL = "[tool.regraft]\nselect = ['adopter', 'torch']\n"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which `regraft` is a command that runs this source."""
    command = tmp_path / "bin" / "regraft"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m regraft "$@"\n')
    command.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
    }


def action(folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    script = [str(ROOT / "scripts" / "action.sh")]
    return subprocess.run(
        script, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.skipif(os.name == "nt", reason="a script for bash")
def test_the_action_annotates_and_hands_on_the_status(
    write: Write, tmp_path: Path, environment: dict[str, str]
) -> None:
    write("project/m.py", CODE)
    write("project/pyproject.toml", ALL)
    project = tmp_path / "project"
    result = action(project, environment)
    assert (result.returncode, result.stderr) == (1, "")
    assert result.stdout.startswith("::warning file=m.py,line=5,")
    chosen = {**environment, "REGRAFT_ARGUMENTS": "--ignore softmax", "REGRAFT_PATHS": "m.py"}
    assert action(project, chosen).returncode == 0
    assert action(project, {**chosen, "REGRAFT_PATHS": "no.py"}).returncode == 2


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="a script for bash")
def test_the_action_puts_the_certificate_into_the_summary(
    write: Write, tmp_path: Path, environment: dict[str, str]
) -> None:
    pytest.importorskip("torch")
    path, project = write("project/m.py", CODE), tmp_path / "project"
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for command in (("init", "-b", "main"), ("add", "."), ("commit", "-m", "first")):
        subprocess.run(["git", *identity, *command], cwd=project, check=True, capture_output=True)
    path.write_text(CODE.replace("torch.softmax(x, dim=-1)", "x.softmax(-1)"))
    summary = tmp_path / "summary.md"
    result = action(
        project,
        {
            **environment,
            "REGRAFT_ARGUMENTS": "--ignore softmax",
            "REGRAFT_VERIFY_AGAINST": "main",
            "GITHUB_STEP_SUMMARY": str(summary),
        },
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "| `weights` | proved |" in summary.read_text()
    assert action(project, {**environment, "REGRAFT_VERIFY_AGAINST": "nowhere"}).returncode == 2


def test_the_action_reads_what_its_script_reads() -> None:
    text = (ROOT / "action.yml").read_text()
    script = (ROOT / "scripts" / "action.sh").read_text()
    variables = set(re.findall(r"^ {8}(REGRAFT_\w+): ", text, re.MULTILINE))
    assert variables == set(re.findall(r"\$\{?(REGRAFT_\w+)", script))


def test_the_hook_runs_a_command_that_leaves_excluded_files_out(
    write: Write, tmp_path: Path
) -> None:
    hook = (ROOT / ".pre-commit-hooks.yaml").read_text()
    (entry,) = re.findall(r"^  entry: regraft (.*)$", hook, re.MULTILINE)
    write("regraft.toml", 'exclude = ["old/"]\nselect = "softmax"\n')
    own, excluded = write("m.py", CODE), write("old/m.py", CODE)
    result = regraft(*shlex.split(entry), own, excluded)
    assert (result.returncode, len(result.stdout.splitlines())) == (1, 1)
    assert regraft(*shlex.split(entry), excluded).returncode == 0


def test_rules_are_listed_with_what_turns_them_on(tmp_path: Path) -> None:
    regraft("new", "rule", "mine/act", "--rules", tmp_path)
    rows = json.loads(regraft("rules", "--rules", tmp_path, "--output-format", "json").stdout)
    by_name = {row["rule"]: row for row in rows}
    assert by_name["adopter/softmax"] == {
        "rule": "adopter/softmax",
        "pack": "adopter",
        "safety": "exact",
        "summary": "Softmax over the last dimension",
        "on": False,
        "condition": "with --all or --select; gains nothing on cpu",
        "worth": {"cpu": "gains nothing", "cuda": by_name["adopter/softmax"]["worth"]["cuda"]},
    }
    assert by_name["torch/gate-up"]["condition"] == "off: its own name turns it on"
    assert by_name["liger/rms-norm"]["condition"].startswith("with --select; needs liger-kernel")
    assert "mine/act" in by_name
    text = regraft("rules").stdout
    assert re.search(r"^torch/silu +numeric +A hand-written SiLU", text, re.MULTILINE)
    (tmp_path / "mine" / "act.rule").write_text("nonsense")
    broken = regraft("rules", "--rules", tmp_path)
    assert (broken.returncode, "act.rule" in broken.stderr) == (2, True)


def test_an_unknown_rule_has_near_names() -> None:
    result = regraft("rule", "torch/rmsnorm")
    assert (result.returncode, "did you mean torch/rms-norm?" in result.stderr) == (2, True)
