"""Test the configuration file: where it is looked for, what it may state, which option wins, and
which files a scan leaves out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import STRANGE, regraft

Write = Callable[[str, str], Path]

CODE = """
import torch


def weights(scores):
    return torch.softmax(scores, dim=-1)


def gate(x):
    return x * torch.sigmoid(x)
"""


def places(*arguments: object, cwd: Path | None = None) -> set[tuple[str, str]]:
    """Return the file names and rules of what a check finds."""
    result = regraft("check", "--all", "--output-format", "json", *arguments, cwd=cwd)
    assert result.stdout, result.stderr
    findings = json.loads(result.stdout)["findings"]
    return {(Path(finding["file"]).name, finding["rule"]) for finding in findings}


def test_the_nearest_file_above_the_path_wins(write: Write, tmp_path: Path) -> None:
    write("regraft.toml", 'select = ["adopter/softmax"]')
    write("a/pyproject.toml", '[tool.other]\nname = "regraft"\n')
    write("a/m.py", CODE)
    write("b/pyproject.toml", '[tool.regraft]\nignore = ["adopter/softmax"]\n')
    write("b/n.py", CODE)
    assert places(tmp_path / "a") == {("m.py", "adopter/softmax")}
    assert places(tmp_path / "b") == {("n.py", "torch/silu")}
    both = places(tmp_path / "a" / "m.py", tmp_path / "b" / "n.py")
    assert both == {("m.py", "adopter/softmax"), ("n.py", "torch/silu")}
    assert len(places("--no-config", tmp_path / "a")) == 2
    assert places("--config", tmp_path / "regraft.toml", tmp_path / "b") == {
        ("n.py", "adopter/softmax")
    }


def test_options_win_over_the_file(write: Write, tmp_path: Path) -> None:
    write("regraft.toml", 'select = ["adopter"]\nignore = ["adopter/softmax"]\n')
    write("m.py", CODE)
    assert places(tmp_path) == set()
    assert places("--select", "softmax", tmp_path) == {("m.py", "adopter/softmax")}
    assert places("--ignore", "torch", tmp_path) == {("m.py", "adopter/softmax")}


def test_per_file_ignores_hold_for_reports_and_rewrites(write: Write, tmp_path: Path) -> None:
    write("pyproject.toml", '[tool.regraft.per-file-ignores]\n"old/*.py" = ["torch/silu"]\n')
    old, new = write("old/m.py", CODE), write("new/m.py", CODE)
    found = json.loads(regraft("check", "--all", "--output-format", "json", tmp_path).stdout)[
        "findings"
    ]
    assert [(Path(finding["file"]).parent.name, finding["rule"]) for finding in found] == [
        ("new", "adopter/softmax"),
        ("new", "torch/silu"),
        ("old", "adopter/softmax"),
    ]
    regraft("check", "--all", "--fix", "--no-verify", tmp_path)
    assert "torch.sigmoid" in old.read_text() and "torch.sigmoid" not in new.read_text()
    assert "torch.softmax" not in old.read_text()


def test_rules_are_relative_to_the_file(write: Write, tmp_path: Path) -> None:
    assert regraft("new", "rule", "mine/act", "--rules", tmp_path / "own").returncode == 0
    write("regraft.toml", 'rules = "own"\nselect = ["mine"]\n')
    path = write("src/m.py", CODE)
    assert regraft("check", "--all", path).stderr == ""


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (
            "[tool.regraft]\nselct = ['torch']\n",
            ":2",
            "unknown key `selct`; did you mean `select`",
        ),
        ("[tool.regraft]\nper_file_ignores = {}\n", ":2", "did you mean `per-file-ignores`?"),
        ("[tool.regraft]\n\njobs = 'many'\n", ":3", "`jobs` has to be a number of processes"),
        ("[tool.regraft]\nselect = 3\n", ":2", "`select` has to be a list of texts"),
        ("[tool.regraft]\nselect = []\n", ":2", "`select` has to be a list of rules or packs"),
        ("[tool.regraft]\nunsafe = 1\n", ":2", "`unsafe` has to be true or false"),
        ("[tool.regraft]\nrules = 'nowhere'\n", ":2", "a directory that exists"),
        ("[tool.regraft]\nexclude = ['!']\n", ":2", "'!' cannot be read"),
        ("[tool.regraft]\nexclude = ['[a-[]b']\n", ":2", "'[a-[]b' cannot be read"),
        (f"[tool.regraft]\nexclude = ['{'*a' * 40}b']\n", ":2", "b' cannot be read"),
        ("[tool.regraft]\neffort = 'much'\n", ":2", "one of low, default, high"),
        ("[tool.regraft]\nkeep = ['all']\n", ":2", "a list of script, fx, order"),
        ("[tool.regraft]\ntime-limit = 0\n", ":2", "a number of seconds above 0"),
        ("[tool.regraft.driver]\n'm.py' = 'build'\n", ":1", "FILE.py:FUNCTION"),
        ("[tool.regraft.per-file-ignores]\n'm.py' = 1\n", ":1", "a list of texts"),
        ("[tool.regraft]\nselect = ['tortch']\n", ":2", "did you mean torch?"),
        ("[tool.regraft.per-file-ignores]\n'm.py' = ['silo']\n", ":1", "did you mean silu?"),
        ("[tool.regraft\n", ":1:14", "is not TOML"),
        ("[tool]\nregraft = 1\n", "", "tool.regraft has to be a table"),
    ],
)
def test_an_error_in_the_file_has_its_place(
    write: Write, text: str, place: str, words: str
) -> None:
    file, model = write("pyproject.toml", text), write("m.py", CODE)
    result = regraft("check", "--all", model)
    assert result.returncode == 2
    assert f"{file}{place} error: " in result.stderr
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_all_errors_of_a_file_are_printed(write: Write, tmp_path: Path) -> None:
    write("regraft.toml", "job = 1\nunsafe = 'yes'\n")
    result = regraft("config", tmp_path)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 2)
    (tmp_path / "regraft.toml").write_bytes(b"\xff\xfe")
    assert "is not UTF-8" in regraft("config", tmp_path).stderr
    write("regraft.toml", "[tool.regraft]\n")
    assert "without [tool.regraft]" in regraft("config", tmp_path).stderr
    write("regraft.toml", f"select = {'[' * 9999}")
    assert "is nested too deeply" in regraft("config", tmp_path).stderr
    (tmp_path / "regraft.toml").unlink()
    (tmp_path / "regraft.toml").symlink_to("nowhere")
    assert "cannot be read" in regraft("config", tmp_path).stderr


def test_a_byte_order_mark_and_windows_line_ends_are_read(write: Write, tmp_path: Path) -> None:
    """Some editors on Windows write both."""
    (tmp_path / "regraft.toml").write_bytes(b'\xef\xbb\xbfjobs = 2\r\nselect = ["torch"]\r\n')
    shown = regraft("config", tmp_path).stdout
    assert "jobs = 2  # regraft.toml:1" in shown
    assert 'select = ["torch"]  # regraft.toml:2' in shown


def test_config_shows_values_and_where_they_come_from(write: Write, tmp_path: Path) -> None:
    write("pyproject.toml", "[tool.regraft]\n\njobs = 2\nexclude = ['gen/']\n")
    write("src/m.py", CODE)
    lines = regraft("config", tmp_path / "src" / "m.py").stdout.splitlines()
    assert lines[0] == f"# {tmp_path / 'pyproject.toml'}"
    assert "jobs = 2  # pyproject.toml:3" in lines
    assert 'exclude = ["gen/"]  # pyproject.toml:4' in lines
    assert "unsafe = false  # default" in lines
    write("again/regraft.toml", "\n".join(lines))  # what it prints can be read again
    number = 1 + lines.index("jobs = 2  # pyproject.toml:3")
    assert f"jobs = 2  # regraft.toml:{number}" in regraft("config", tmp_path / "again").stdout


def names_of(*arguments: object, cwd: Path | None = None) -> set[str]:
    """Return the names of the files in which a check finds something."""
    return {name for name, _ in places("--select", "softmax", *arguments, cwd=cwd)}


def test_config_refuses_a_path_that_does_not_exist(tmp_path: Path) -> None:
    result = regraft("config", "nowhere", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert "nowhere: no such file or directory" in result.stderr


def test_config_reports_a_rule_that_does_not_exist(write: Write, tmp_path: Path) -> None:
    write("regraft.toml", 'select = ["torch/gelo"]\n')
    process = regraft("config", cwd=tmp_path)
    assert process.returncode == 2
    assert "regraft.toml:1 error: `select` names torch/gelo" in process.stderr
    assert 'select = ["torch/gelo"]' in process.stdout


def test_gitignore_hidden_folders_and_environments_are_left_out(
    write: Write, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    write(".gitignore", "generated/\n*_old.py\n!\n[a-[]b\n")
    write("pkg/.gitignore", "!keep_old.py\nsecret.py\n")
    for name in (
        "a.py",
        "b_old.py",
        "pkg/keep_old.py",
        "pkg/secret.py",
        "secret.py",
        "generated/c.py",
        ".hidden/d.py",
        "node_modules/e.py",
        "build/f.py",
        "env/g.py",
        "__pycache__/h.py",
    ):
        write(name, CODE)
    write("env/pyvenv.cfg", "home = /usr/bin\n")
    assert names_of(tmp_path) == {"a.py", "keep_old.py", "secret.py"}
    assert names_of(tmp_path / "pkg") == {"keep_old.py"}
    assert names_of("--no-gitignore", tmp_path / "pkg") == {"keep_old.py", "secret.py"}
    # what is named is read
    assert names_of(tmp_path / "b_old.py") == {"b_old.py"}
    assert names_of(tmp_path / "generated") == {"c.py"}
    assert names_of(tmp_path / "build", tmp_path / ".hidden") == {"f.py", "d.py"}
    write("env/.gitignore", "*\n")
    assert names_of(tmp_path / "env") == {"g.py"}


def test_exclude_leaves_out_what_is_not_named(write: Write, tmp_path: Path) -> None:
    write("regraft.toml", 'exclude = ["gen/", "/top.py"]\n')
    for name in ("gen/a.py", "top.py", "sub/top.py", "sub/other.py"):
        write(name, CODE)
    assert names_of(tmp_path) == {"top.py", "other.py"}
    assert names_of("--exclude", "other.py", ".", cwd=tmp_path) == {"top.py"}
    assert names_of(tmp_path / "gen" / "a.py") == {"a.py"}
    assert names_of("--force-exclude", tmp_path / "gen" / "a.py", tmp_path / "sub") == {
        "top.py",
        "other.py",
    }
    result = regraft("check", "--all", "--exclude", "!", tmp_path)
    assert (result.returncode, "cannot be read" in result.stderr) == (2, True)


def test_standard_input_is_a_file_of_its_own(write: Write, tmp_path: Path) -> None:
    write("pkg/regraft.toml", 'select = ["torch/silu"]\n')
    result = regraft("check", "--all", "--output-format", "concise", "-", text=CODE, cwd=tmp_path)
    assert result.returncode == 1
    assert "<stdin>:6:12 adopter/softmax" in result.stdout
    named = ("--stdin-filename", tmp_path / "pkg" / "m.py", "-")
    result = regraft("check", "--all", "--output-format", "concise", *named, text=CODE)
    assert result.stdout.startswith(f"{tmp_path / 'pkg' / 'm.py'}:10:12 torch/silu")
    assert len(result.stdout.splitlines()) == 1
    diff = regraft("check", "--all", "--diff", *named, text=CODE).stdout
    assert "+    return torch.nn.functional.silu(x)" in diff
    assert regraft("check", "--all", "-", text="def f(:").returncode == 2
    for wrong in (("--fix", "-"), ("-", "m.py"), ("--stdin-filename", "m.py", "m.py")):
        assert regraft("check", "--all", *wrong, text=CODE).returncode == 2


def test_notebooks_are_not_read_and_it_says_so(write: Write, tmp_path: Path) -> None:
    notebook = write("a.ipynb", '{"cells": []}')
    write("m.py", CODE)
    result = regraft("check", "--all", tmp_path)
    assert "1 notebook not read" in result.stdout
    result = regraft("check", "--all", notebook)
    assert (result.returncode, "notebooks are not read" in result.stderr) == (2, True)


def test_verify_reads_the_file_too(write: Write, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    write("regraft.toml", 'select = ["torch/silu"]\n[per-file-ignores]\n"n.py" = ["silu"]\n')
    assert "gate: proved" in regraft("verify", "--all", write("m.py", CODE), cwd=tmp_path).stdout
    assert "nothing changed" in regraft("verify", "--all", write("n.py", CODE), cwd=tmp_path).stdout


DRIVER = """
import torch


def build(module):
    options = type("Options", (), {"dim": 16})
    return module.Strange(unguessable_thing=options), [(torch.randn(2, 16),)]
"""


@pytest.mark.slow
def test_a_driver_of_the_file_proves(write: Write, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    write("regraft.toml", '[driver]\n"pkg/*.py" = "drivers/strange.py:build"\n')
    write("drivers/strange.py", DRIVER)
    path = write("pkg/m.py", STRANGE)
    result = regraft("check", "--all", "--fix", path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "dropout_add_layer_norm(x" in path.read_text()


def test_rules_are_listed_for_the_configured_target(tmp_path: Path) -> None:
    (tmp_path / "regraft.toml").write_text('target = "cuda"\n')
    configured = regraft("rules", cwd=tmp_path).stdout
    assert "gains nothing on cuda" in configured
    assert "gains nothing on cpu" not in configured
    stated = regraft("rules", "--target", "cpu", cwd=tmp_path).stdout
    assert "gains nothing on cpu" in stated
    assert "gains nothing on cuda" not in stated


def test_a_pack_in_the_place_of_a_directory_of_packs_is_an_error(tmp_path: Path) -> None:
    """Its rules would not be found, and nothing would say so."""
    regraft("new", "rule", "mine/fast-silu", cwd=tmp_path)
    (tmp_path / "net.py").write_text("x = 1\n")
    for command in (("check", "net.py"), ("rules",), ("test", "silu")):
        result = regraft(*command, "--rules", "rules/mine", cwd=tmp_path)
        assert result.returncode == 2, command
        printed = result.stdout + result.stderr
        assert "rules/mine error: it is a pack, with fast-silu.rule" in printed, printed
        assert "above it, rules\n" in printed
    assert regraft("check", "net.py", "--rules", "rules", cwd=tmp_path).returncode == 0


def test_a_folder_without_python_files_is_remarked_upon(tmp_path: Path) -> None:
    result = regraft("check", tmp_path)
    assert (result.returncode, "no Python file there" in result.stdout) == (0, True)
    (tmp_path / "net.py").write_text("x = 1\n")
    assert "no Python file" not in regraft("check", tmp_path).stdout
