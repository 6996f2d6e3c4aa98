"""The text of one Python file: reading, byte spans, byte-exact edits and safe writing.

All offsets are offsets into the UTF-8 form of the text, because the columns of `ast` are UTF-8 byte
columns. Files in another encoding (coding cookie) are decoded, edited as UTF-8 and encoded back.
"""

from __future__ import annotations

import ast
import difflib
import io
import os
import tempfile
import tokenize
import warnings
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

MAX_BYTES = 4 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_SUFFIXES = ("", ".py", ".pyi", ".ipynb")  # of files of Python, and of texts without a file


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A half-open range of byte offsets."""

    start: int
    end: int

    def touches(self, span: Span) -> bool:
        """Return whether the two ranges share a byte, or are empty at the same place."""
        return (self.start < span.end and span.start < self.end) or self == span


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """A replacement of the bytes of `span` by `text`."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class SourceError:
    """The reason why a file cannot be worked on, with the place (1-based; 0 where there is
    none)."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        return f"{place}: {self.message}" if place else self.message


class SourceFile:
    """A parsed Python file.

    data      the bytes as they are on disk
    encoding  the encoding of `data`
    text      the UTF-8 form of the file, with the BOM
    tree      the syntax tree
    """

    def __init__(
        self, path: str, data: bytes, encoding: str, text: bytes, tree: ast.Module
    ) -> None:
        self.path = path
        self.data = data
        self.encoding = encoding
        self.text = text
        self.tree = tree

    @cached_property
    def line_starts(self) -> tuple[int, ...]:
        """The byte offset of the first character of each line; a BOM stands before the
        first line."""
        starts = [len(_BOM) if self.text.startswith(_BOM) else 0]
        position = 0
        for line in self.text.splitlines(keepends=True):
            position += len(line)
            starts.append(position)
        return tuple(starts)

    def span(self, node: ast.AST) -> Span:
        """Return the bytes of an expression or statement, without its decorators."""
        starts = self.line_starts
        return Span(
            starts[node.lineno - 1] + node.col_offset,  # type: ignore[attr-defined]
            starts[node.end_lineno - 1] + node.end_col_offset,  # type: ignore[attr-defined]
        )

    def segment(self, node: ast.AST) -> str:
        """Return the source text of a node."""
        span = self.span(node)
        return self.text[span.start : span.end].decode()

    def position(self, offset: int) -> tuple[int, int]:
        """Return the 1-based line and column (in characters) of a byte offset."""
        line = min(
            max(bisect_right(self.line_starts, offset), 1), max(len(self.line_starts) - 1, 1)
        )
        return (
            line,
            len(self.text[self.line_starts[line - 1] : offset].decode(errors="replace")) + 1,
        )

    def line(self, number: int) -> str:
        """Return the text of a 1-based line, without its line ending."""
        start, end = self.line_starts[number - 1], self.line_starts[number]
        return self.text[start:end].decode().rstrip("\r\n")

    @cached_property
    def newline(self) -> str:
        """The file's own line ending: that of its first line."""
        first = self.text.split(b"\n", 1)[0]
        return "\r\n" if first.endswith(b"\r") else "\n"

    def comments_near(self, span: Span) -> tuple[Span, ...]:
        """Return the comments on the lines of `span`; the file is tokenized only when there may be
        one."""
        first = self.position(span.start)[0]
        end = self.line_starts[self.position(span.end)[0]]
        start = self.line_starts[first - 1]
        if b"#" not in self.text[start:end]:
            return ()
        return tuple(comment for comment in self.comments if start <= comment.start < end)

    @cached_property
    def comments(self) -> tuple[Span, ...]:
        """The bytes of every comment."""
        readline = io.BytesIO(self.text).readline
        spans = []
        for token in tokenize.tokenize(readline):
            if token.type == tokenize.COMMENT:
                # tokenize counts columns in characters, and never counts a BOM
                start = self.line_starts[token.start[0] - 1]
                start += len(token.line[: token.start[1]].encode())
                spans.append(Span(start, start + len(token.string.encode())))
        return tuple(spans)


def parse(path: str, data: bytes) -> SourceFile | SourceError:
    """Parse bytes as Python; return a `SourceError` for bytes that are not Python, whatever the
    reason."""
    if len(data) > MAX_BYTES:
        return SourceError(
            path, 0, 0, f"file has {len(data):,} bytes, more than the limit of {MAX_BYTES:,}"
        )
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        return SourceError(path, line, 0, "binary file (it contains a NUL byte)")
    try:
        encoding = _encoding(data)
        text = data if encoding in ("utf-8", "utf-8-sig") else data.decode(encoding).encode()
        text.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return SourceError(path, line, 0, f"not valid {error.encoding}: {error.reason}")
    except SyntaxError as error:
        return SourceError(path, 1, 0, str(error))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the file's own SyntaxWarnings are not ours to report
            tree = ast.parse(text.decode("utf-8-sig"), filename=path)
    except SyntaxError as error:
        hint = "" if Path(path).suffix in _SUFFIXES else "; is this a Python file?"
        message = f"syntax error: {error.msg}{hint}"
        return SourceError(path, error.lineno or 0, error.offset or 0, message)
    except (RecursionError, MemoryError):
        return SourceError(path, 0, 0, "nested too deeply to parse")
    except ValueError as error:
        return SourceError(path, 0, 0, str(error))
    return SourceFile(path, data, encoding, text, tree)


def _encoding(data: bytes) -> str:
    """Return the encoding by BOM or coding cookie; raise SyntaxError for an unknown one."""
    try:
        return tokenize.detect_encoding(io.BytesIO(data).readline)[0]
    except SyntaxError:
        data.decode()  # without a cookie the cause is bytes that are not UTF-8: name their place
        raise


def read(path: Path) -> SourceFile | SourceError:
    """Read and parse one file."""
    try:
        if path.exists() and not path.is_file():
            return SourceError(str(path), 0, 0, "not a regular file")
        if path.stat().st_size > MAX_BYTES:
            return SourceError(
                str(path),
                0,
                0,
                f"file has {path.stat().st_size:,} bytes, more than the limit of {MAX_BYTES:,}",
            )
        data = path.read_bytes()
    except OSError as error:
        return SourceError(str(path), 0, 0, error.strerror or str(error))
    return parse(str(path), data)


def apply(source: SourceFile, edits: Iterable[Edit]) -> bytes:
    """Return the bytes of the file after `edits`, in the file's own encoding.

    Raise ValueError when two edits overlap: composing patches is the caller's work.
    """
    parts: list[bytes] = []
    position = 0
    for edit in sorted(edits):
        if edit.span.start < position:
            raise ValueError(f"{source.path}: edits overlap at byte {edit.span.start}")
        parts += (source.text[position : edit.span.start], edit.text.encode())
        position = edit.span.end
    text = b"".join((*parts, source.text[position:]))
    return (
        text if source.encoding in ("utf-8", "utf-8-sig") else text.decode().encode(source.encoding)
    )


def diff(path: str, before: bytes, after: bytes, encoding: str = "utf-8") -> str:
    """Return a unified diff that `git apply` takes, with `a/` and `b/` before the path; "" when
    nothing changed."""
    lines: list[str] = []
    label = path.lstrip("/")
    old, new = (_lines(data.decode(encoding)) for data in (before, after))
    for line in difflib.unified_diff(old, new, f"a/{label}", f"b/{label}"):
        lines.append(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")
    return "".join(lines)


def _lines(text: str) -> list[str]:
    """Return the lines of a text with their endings, split where git and Python split it."""
    # str.splitlines also splits at form feeds and Unicode separators, which git and Python do not
    return io.StringIO(text, newline="\n").readlines()


def write(source: SourceFile, data: bytes) -> SourceError | None:
    """Replace the file by `data`, as a whole or not at all; return an error where it changed since
    it was read."""
    path = Path(os.path.realpath(source.path))
    try:
        if path.read_bytes() != source.data:
            return SourceError(
                source.path, 0, 0, "file changed on disk after it was read; not overwritten"
            )
        write_atomically(path, data, path.stat().st_mode)
    except OSError as error:
        return SourceError(source.path, 0, 0, f"cannot write: {error.strerror or error}")
    return None


def write_copy(path: Path, data: bytes) -> SourceError | None:
    """Write a new file and the folders above it; return an error where it exists with another
    content."""
    try:
        if path.exists() and path.read_bytes() != data:
            return SourceError(
                str(path), 0, 0, "is there already, with another content; not overwritten"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError as error:
        return SourceError(str(path), 0, 0, f"cannot write: {error.strerror or error}")
    return None


def write_atomically(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write `data` to a temporary file beside `path`, then rename it to `path`."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.chmod(temporary, mode & 0o7777)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
