"""Test that the cache and several processes report as a plain scan does, whatever happens to the
cache."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from regraft.report.json_report import Collector
from regraft.rules import load_rules
from regraft.scanning import CompiledRule, FileReport, check_file, compile_rules, parallel
from regraft.scanning.cache import Cache
from regraft.scanning.parallel import Task, scan_files
from regraft.source import cache_key
from regraft.source.cache_key import cache_directory
from regraft.source.text import SourceError

Write = Callable[[str, str], Path]
RULES, _ = compile_rules(load_rules()[0])
CODE = "import torch\n\n\ndef weights(scores):\n    return torch.softmax(scores, dim=-1)\n"


def report_data(reports: Sequence[FileReport]) -> dict[str, object]:
    """Return the machine-readable report, without its time."""
    total = Collector(explain=True)
    for report in reports:
        total.add(report)
    return total.data(0.0)


def scanned(items: Sequence[Path | SourceError], task: Task, jobs: int = 1) -> dict[str, object]:
    """Return the report on files, scanned by a task."""
    return report_data(list(scan_files(items, task, jobs)))


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of the names of the files that were scanned, not taken from the cache."""
    names: list[str] = []

    def record_scan(path: Path, *arguments: Any, **options: Any) -> FileReport:
        names.append(path.name)
        return check_file(path, *arguments, **options)

    monkeypatch.setattr(parallel, "check_file", record_scan)
    return names


def test_the_second_scan_comes_from_the_cache(
    write: Write, tmp_path: Path, scans: list[str]
) -> None:
    files = [write("m.py", CODE), write("n.py", "import torch\n"), write("copy.py", CODE)]
    task = Task(RULES, cache=tmp_path / "kept")
    fresh = scanned(files, Task(RULES))
    assert scanned(files, task) == fresh
    assert scans == [
        "m.py",
        "n.py",
        "copy.py",
        "m.py",
        "n.py",
    ]  # the copy has the content of the first
    scans.clear()
    assert scanned(files, task) == fresh
    assert scans == []


@pytest.mark.parametrize("change", ["content", "rules", "package", "source"])
def test_what_a_report_depends_on_is_in_its_key(
    write: Write, tmp_path: Path, scans: list[str], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    path = write("pkg/m.py", CODE)
    rules: tuple[CompiledRule, ...] = RULES
    scanned([path], Task(rules, cache=tmp_path / "kept"))
    if change == "content":
        path.write_text(CODE + "\n")
    elif change == "rules":
        rules = RULES[1:]
    elif change == "package":
        write("pkg/__init__.py", "")
    else:
        monkeypatch.setattr(cache_key, "PACKAGE", path.parent)
    scanned([path], Task(rules, cache=tmp_path / "kept"))
    assert scans == ["m.py", "m.py"]


@pytest.mark.parametrize("content", [b"", b"\x00\xff", b"{}", b"0" * 32 + b"\n{}", None])
def test_a_broken_entry_is_scanned_again(
    write: Write, tmp_path: Path, scans: list[str], content: bytes | None
) -> None:
    path = write("m.py", CODE)
    task = Task(RULES, cache=tmp_path / "kept")
    fresh = scanned([path], task)
    (entry,) = tmp_path.glob("kept/??/*")
    entry.write_bytes(content if content is not None else entry.read_bytes()[:-3])
    assert scanned([path], task) == fresh
    assert scanned([path], task) == fresh
    assert len(scans) == 2


def test_a_directory_that_cannot_be_written_is_no_error(write: Write, tmp_path: Path) -> None:
    path = write("m.py", CODE)
    (tmp_path / "file").write_text("")
    assert scanned([path], Task(RULES, cache=tmp_path / "file" / "kept")) == scanned(
        [path], Task(RULES)
    )


def test_errors_are_not_kept(write: Write, tmp_path: Path, scans: list[str]) -> None:
    path = write("m.py", "def f(:\n")
    task = Task(RULES, cache=tmp_path / "kept")
    assert scanned([path, path], task)["errors"]
    assert not list(tmp_path.glob("kept/??/*"))


def test_entries_that_nobody_uses_are_deleted(write: Write, tmp_path: Path) -> None:
    path, task = write("m.py", CODE), Task(RULES, cache=tmp_path / "kept")
    scanned([path], task)
    (entry,) = tmp_path.glob("kept/??/*")
    old = entry.with_name("old")
    old.write_text("")
    for stale in (old, tmp_path / "kept" / "pruned"):
        os.utime(stale, (0, 0))
    Cache(tmp_path / "kept", RULES).prune()
    assert entry.exists()
    assert not old.exists()


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_directory({"REGRAFT_CACHE_DIR": "here", "XDG_CACHE_HOME": "/x"}) == Path("here")
    if os.name != "nt":
        assert cache_directory({"XDG_CACHE_HOME": "/x"}) == Path("/x/regraft")
        monkeypatch.setenv("HOME", str(tmp_path))
        assert cache_directory({"XDG_CACHE_HOME": "relative"}) == tmp_path / ".cache" / "regraft"


def test_processes_give_the_same_in_the_same_order(write: Write, tmp_path: Path) -> None:
    files: list[Path | SourceError] = [
        write(f"m{number}.py", CODE + CODE.replace("weights", "again") * (number % 3))
        for number in range(12)
    ]
    files[3:3] = [
        SourceError("gone.py", 0, 0, "no such file or directory"),
        write("bad.py", "def f(:\n"),
    ]
    fresh = scanned(files, Task(RULES, explain=True))
    assert scanned(files, Task(RULES, explain=True), jobs=2) == fresh
    task = Task(RULES, cache=tmp_path / "kept")
    assert scanned(files, task, jobs=2) == scanned(files, task) == scanned(files, Task(RULES))
    assert pickle.loads(pickle.dumps(task)).cache == task.cache  # as where processes do not fork


def test_an_exception_in_a_process_is_an_error_of_its_file(write: Write) -> None:
    broken = CompiledRule(RULES[0].rule, (None,))  # type: ignore[arg-type]
    files = [write("a.py", CODE), write("b.py", "x = 1\n"), write("c.py", CODE)]
    reports = list(scan_files(files, Task((broken,)), jobs=2))
    assert [len(report.errors) for report in reports] == [1, 0, 1]
    assert "internal error: AttributeError" in reports[0].errors[0].message


def test_a_file_that_is_followed_counts(write: Write, tmp_path: Path, scans: list[str]) -> None:
    helper = write(
        "helper.py", "import torch\n\n\ndef soft(x, dim):\n    return torch.softmax(x, dim)\n"
    )
    code = (
        "import torch\nfrom helper import soft\n\n\ndef weights(scores):\n    return soft(scores,"
        " -1)\n"
    )
    files, task = [write("m.py", code)], Task(RULES, cache=tmp_path / "kept")
    (report,) = scan_files(files, task)
    assert [finding.rule.id for finding in report.findings] == ["adopter/softmax"]
    scanned(files, task)
    assert scans == ["m.py"]
    helper.write_text(
        helper.read_text().replace("softmax", "sigmoid").replace("(x, dim)\n", "(x)\n")
    )
    (report,) = scan_files(files, task)
    assert report.findings == ()
    helper.unlink()
    scanned(files, task)
    assert scans == ["m.py", "m.py", "m.py"]
    moved = tmp_path / "elsewhere" / "m.py"
    moved.parent.mkdir()
    moved.write_text(code)
    scanned([moved], task)
    assert scans == ["m.py"] * 4
