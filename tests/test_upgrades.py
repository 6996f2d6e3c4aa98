"""Test what this version does with files of older and newer versions of Regraft, and with damaged
ones: it says so and exits with 2, or reads them rightly."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import regraft
from regraft.rules import BUILT_IN
from regraft.rules.lock_file import NAME
from regraft.source import cache_key

CODE = "import torch\n\n\ndef f(x):\n    return x * torch.sigmoid(x)\n"
LOCK = """\
format = 1
regraft = "0.0.9"
torch = "2.8.0"
device = "cpu"
machine = ""
target = "m.py:build"
goal = "fastest"
mode = "inference"

[[rule]]
id = "torch/silu"
sha256 = "{digest}"
a-later-figure = 3
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a model, which is the working directory, with a cache of its own."""
    (tmp_path / "m.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGRAFT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def check(*options: str, code: int, message: str = "") -> list[str]:
    """Return the rules that `regraft check` finds in the model, given the exit code and a message
    that it has to give."""
    result = regraft("check", "m.py", "--output-format", "json", *options)
    assert result.returncode == code, result.stderr
    output = result.stdout + result.stderr
    assert message in output and "Traceback" not in output, output
    if code == 2 and not result.stdout:
        return []
    return [finding["rule"] for finding in json.loads(result.stdout)["findings"]]


def digest_of_silu() -> str:
    """Return the digest that a lock pins the rule with."""
    import hashlib

    return hashlib.sha256((BUILT_IN / "torch" / "silu.rule").read_bytes()).hexdigest()


# lock files


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("format = 1", "format = 2", "format 2 is unknown, this version reads format = 1"),
        ("format = 1", "format = true", "format True is unknown"),
        ("format = 1\n", "", "format None is unknown"),
        ('"torch/silu"', '"torch/gone"', "there is no rule torch/gone any more; measure again: "),
        ("{digest}", "0" * 64, "the rule torch/silu is not the one that was measured; measure"),
        ("[[rule]]", "[[rule]", "is not TOML"),
        ("goal", "aim", "goal is missing or not a text"),
        ("a-later-figure = 3", f"deep = {'[' * 5000}{']' * 5000}", "is not TOML"),
    ],
)
def test_a_lock_file_that_does_not_fit_stops_the_check(
    project: Path, old: str, new: str, message: str
) -> None:
    (project / NAME).write_text(LOCK.replace(old, new).format(digest=digest_of_silu()))
    assert check(code=2, message=message) == []
    assert NAME in regraft("check", "m.py").stderr


def test_a_lock_file_of_another_version_is_read_and_noted(project: Path) -> None:
    """A key that this version does not know is a figure of the measurement."""
    (project / NAME).write_text(LOCK.format(digest=digest_of_silu()))
    message = "measured with Regraft 0.0.9, here is "
    assert check(code=1, message=message) == ["torch/silu"]


# baselines


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": 2, "findings": []}', "format 2 is unknown, this version reads format 1"),
        ('{"format": true, "findings": []}', "format True is unknown"),
        ('{"findings": []}', "format None is unknown"),
        ("[]", "format None is unknown"),
        ('{"format": 1, "findings": [', "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"format": 1, "findings": [{"file": "m.py"}]}', "is no finding: it needs the texts"),
        ('{"format": 1, "findings": {}}', "`findings` has to be a list"),
    ],
)
def test_a_baseline_that_cannot_be_used_stops_the_check(
    project: Path, text: str, message: str
) -> None:
    (project / "old.json").write_text(text)
    assert check("--baseline", "old.json", code=2, message=message) == []


def test_a_baseline_with_other_fingerprints_accepts_nothing(project: Path) -> None:
    """Also where the fingerprints of another version are computed otherwise."""
    path = project / "regraft.baseline.json"
    assert regraft("baseline", "write", "m.py").returncode == 0
    document = json.loads(path.read_text())
    assert check("--baseline", path.name, code=0) == []
    document["findings"][0] |= {"fingerprint": "of another version", "a later key": 1}
    path.write_text(json.dumps(document))
    assert check("--baseline", path.name, code=1) == ["torch/silu"]


# the cache


def other_package(project: Path) -> Path:
    """Return a package that stands for another version of Regraft."""
    package = project / "another" / "regraft"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "0.0.9"\n')
    return package


def test_a_cache_of_another_version_is_not_read(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries of both stand beside each other, whichever version wrote last."""
    with monkeypatch.context() as patch:
        patch.setattr(cache_key, "PACKAGE", other_package(project))
        assert check(code=1) == ["torch/silu"]
    entries = {path: path.read_bytes() for path in (project / "cache").rglob("*") if path.is_file()}
    for path in entries:
        path.write_bytes(b"of another version, and never read")
    assert check(code=1) == ["torch/silu"]
    unread = [path for path in entries if entries[path]]
    assert unread and all(path.read_bytes().startswith(b"of another") for path in unread)


def damage_entries(cache: Path) -> None:
    for path in (path for path in cache.rglob("*") if path.is_file()):
        path.write_bytes(path.read_bytes()[:20])


def replace_folders(cache: Path) -> None:
    for path in cache.iterdir():
        if path.is_dir():
            for file in [*path.rglob("*")][::-1]:
                file.rmdir() if file.is_dir() else file.unlink()
            path.rmdir()
            path.write_text("a file where a folder was")


@pytest.mark.parametrize("damage", [damage_entries, replace_folders])
def test_a_damaged_cache_is_no_error(project: Path, damage: Callable[[Path], None]) -> None:
    assert check(code=1) == ["torch/silu"]
    damage(project / "cache")
    assert check(code=1) == check(code=1) == ["torch/silu"]


# directories of rules


def write_rule(project: Path, text: str) -> None:
    """Write a rule of the user, with the page of a built-in one."""
    pack = project / "rules" / "mine"
    pack.mkdir(parents=True)
    (pack / "silu.rule").write_text(text)
    (pack / "silu.md").write_text((BUILT_IN / "torch" / "silu.md").read_text("utf-8"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rule ", "law ", "unexpected `law`; expected a section or the end"),
        ("  safety", "  speed   fast\n  safety", "unexpected `speed`; expected a section"),
        ("torch.nn.functional.silu", "regraft.ops.gone", "there is no kernel regraft.ops.gone"),
        ("forward", "backward", "unexpected `backward`; expected a section or the end"),
    ],
)
def test_a_rule_of_another_version_stops_the_check(
    project: Path, old: str, new: str, message: str
) -> None:
    text = (BUILT_IN / "torch" / "silu.rule").read_text("utf-8")
    assert old in text
    write_rule(project, text.replace(old, new, 1))
    check("--rules", "rules", "--select", "mine", code=2, message=message)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "a rule file starts with `rule NAME`"),
        (b"\xff\xfe", "cannot be read"),
        (b"\0", "a NUL character"),
        (b"rule silu\n", "rule `silu` has no `summary`"),
    ],
)
def test_a_damaged_rule_stops_the_check(project: Path, data: bytes, message: str) -> None:
    write_rule(project, "")
    (project / "rules" / "mine" / "silu.rule").write_bytes(data)
    check("--rules", "rules", "--select", "mine", code=2, message=message)


def test_the_pages_of_rules_show_one_that_fits_nothing_any_more(project: Path) -> None:
    """A call of an unknown function is no error: it may be a function of the user."""
    text = (BUILT_IN / "torch" / "silu.rule").read_text("utf-8")
    write_rule(project, text.replace("torch.sigmoid", "torch.renamed").replace("exp", "renamed"))
    assert check("--rules", "rules", "--select", "mine", code=0) == []
    result = regraft("test", "mine", "--rules", "rules")
    assert result.returncode == 1 and "silu" in result.stdout + result.stderr


@pytest.mark.parametrize("option", ["--fix", "--diff", "--add-ignores"])
def test_nothing_is_written_where_a_rule_is_wrong(project: Path, option: str) -> None:
    """A rule that is not there may be one that the user wants to leave out."""
    options = ["--no-verify"] if option == "--fix" else []
    result = regraft("check", "m.py", "--ignore", "torch/sliu", option, *options)
    assert result.returncode == 2 and "did you mean torch/silu?" in result.stderr
    assert (project / "m.py").read_text() == CODE and "+++" not in result.stdout
    write_rule(project, "rule silu\n")
    result = regraft("check", "m.py", "--rules", "rules", option, *options)
    assert result.returncode == 2 and "has no `summary`" in result.stderr
    assert (project / "m.py").read_text() == CODE and "+++" not in result.stdout
