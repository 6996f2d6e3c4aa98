"""Test byte-exact reading and editing, and one clear error for every bad input."""

from __future__ import annotations

import ast
import os
import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.source.text import (
    MAX_BYTES,
    Edit,
    SourceError,
    SourceFile,
    Span,
    apply,
    diff,
    parse,
    read,
    write,
)


def ok(content: bytes) -> SourceFile:
    """Return the file of bytes that must parse."""
    source = parse("x.py", content)
    assert isinstance(source, SourceFile), source
    return source


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b"def f(:\n", 1, "syntax error"),
        (b"x = 1\n  y = 2\n", 2, "unexpected indent"),
        (b"x = 1\n\xff\xfe = 2\n", 2, "not valid utf-8"),
        (b"# coding: latin-9000\nx = 1\n", 1, "unknown encoding"),
        (b"# coding: ascii\nx = '\xe9'\n", 2, "not valid ascii"),
        (b"\x7fELF\0\0\n", 1, "binary file"),
        (b"x = 1\n\0", 2, "binary file"),
        (b"#" * (MAX_BYTES + 1), 0, "more than the limit"),
        (b"(" * 5000 + b")" * 5000, None, ""),
    ],
)
def test_bad_bytes_are_one_error_with_a_place(content: bytes, line: int | None, words: str) -> None:
    error = parse("x.py", content)
    assert isinstance(error, SourceError)
    assert words in error.message
    assert line is None or error.line == line


@pytest.mark.parametrize(("name", "asks"), [("README.md", True), ("x.py", False), ("tool", False)])
def test_text_of_another_language_is_asked_about(name: str, asks: bool) -> None:
    error = parse(name, b"See the docs\n")
    assert isinstance(error, SourceError)
    assert ("is this a Python file?" in error.message) is asks


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    missing = read(tmp_path / "no.py")
    assert isinstance(missing, SourceError)
    assert "No such file" in missing.message
    directory = read(tmp_path)
    assert isinstance(directory, SourceError)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x = 1",
        b"\xef\xbb\xbfx = 1\r\ny = 'caf\xc3\xa9'\r\n",
        b"# -*- coding: latin-1 -*-\ns = 'caf\xe9'; y = 1\n",
        b"if x:\n\ty = 'a'  # tab\n",
        b"s = '''a\n\x0cb\x0b'''\nz = s\n",
        "s = '\u2028 ü'; t = 1\n".encode(),
    ],
)
def test_spans_point_at_the_text_of_each_node(content: bytes) -> None:
    source = ok(content)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.expr) and not isinstance(getattr(node, "ctx", None), ast.Store):
            assert ast.dump(ast.parse(source.segment(node), mode="eval").body) == ast.dump(node)
    assert apply(source, []) == content


def test_edits_keep_every_other_byte_and_the_encoding() -> None:
    content = b"# -*- coding: latin-1 -*-\ns = 'caf\xe9'; y = 1\r\n"
    source = ok(content)
    value = next(
        node for node in ast.walk(source.tree) if isinstance(node, ast.Constant) and node.value == 1
    )
    assert apply(source, [Edit(source.span(value), "22")]) == content.replace(b"y = 1", b"y = 22")


def test_overlapping_edits_are_refused() -> None:
    with pytest.raises(ValueError, match="overlap"):
        apply(ok(b"abc\n"), [Edit(Span(0, 2), "x"), Edit(Span(1, 3), "y")])


@given(st.text(alphabet="abé\u2028 \t#\r\n", max_size=60), st.data())
def test_any_edit_changes_only_its_span(text: str, data: st.DataObject) -> None:
    source = SourceFile("x.py", text.encode(), "utf-8", text.encode(), ast.parse(""))
    start = data.draw(st.integers(0, len(source.text)))
    end = data.draw(st.integers(start, len(source.text)))
    after = apply(source, [Edit(Span(start, end), "new")])
    assert after == source.text[:start] + b"new" + source.text[end:]


def test_diff_applies_with_git(tmp_path: Path) -> None:
    generator = random.Random(0)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for ending in (b"\n", b"\r\n"):
        lines = [b"line %d" % number for number in range(40)]
        before = ending.join(lines)
        for _ in range(6):
            lines[generator.randrange(40)] = b"changed"
        after = ending.join(lines) + ending
        path = tmp_path / "m.py"
        path.write_bytes(before)
        (tmp_path / "p.diff").write_bytes(diff("m.py", before, after).encode())
        subprocess.run(["git", "apply", "p.diff"], cwd=tmp_path, check=True)
        assert path.read_bytes() == after


def test_write_replaces_whole_and_keeps_the_mode(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_bytes(b"x = 1\n")
    os.chmod(path, 0o640)
    link = tmp_path / "link.py"
    link.symlink_to(path)
    source = read(link)
    assert isinstance(source, SourceFile)
    assert write(source, b"x = 2\n") is None
    assert path.read_bytes() == b"x = 2\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.py", "m.py"]


def test_a_file_that_changed_on_disk_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_bytes(b"x = 1\n")
    source = read(path)
    assert isinstance(source, SourceFile)
    path.write_bytes(b"x = 3\n")
    error = write(source, b"x = 2\n")
    assert error is not None
    assert "changed on disk" in error.message
    assert path.read_bytes() == b"x = 3\n"
