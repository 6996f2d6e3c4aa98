"""How rewritten code is laid out: line length, indentation and line breaks after the file's own habits."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from regraft.source.text import SourceFile, Span


@dataclass(frozen=True, slots=True)
class Layout:
    """Breaks a call over lines when it does not fit; `head` comes before it on its line."""

    source: SourceFile
    span: Span
    indent: str
    head: str = ""

    def call(self, function: str, arguments: list[str]) -> str:
        inline = f"{function}({', '.join(arguments)})"
        line_start = self.source.line_starts[self.source.position(self.span.start)[0] - 1]
        before = self.source.text[line_start : self.span.start].decode()
        after = self.source.text[self.span.end :].split(b"\n", 1)[0].decode()
        limit = _line_limit(self.source)
        if len(self.indent + before.lstrip() + self.head + inline + after) <= limit or not arguments:
            return inline
        newline, deeper = self.source.newline, self.indent + indent_unit(self.source)
        one_line = deeper + ", ".join(arguments)
        if len(one_line) <= limit:
            return f"{function}({newline}{one_line}{newline}{self.indent})"
        nested = [_indented(argument, indent_unit(self.source)) for argument in arguments]
        each = "".join(f"{deeper}{argument},{newline}" for argument in nested)
        return f"{function}({newline}{each}{self.indent})"


def _indented(argument: str, unit: str) -> str:
    """Later lines of an argument one step deeper; an argument that may hold a string of several lines stays."""
    if '"""' in argument or "'''" in argument:
        return argument
    return argument.replace("\n", "\n" + unit)


_BEFORE_GROUP = re.compile(rb"(?:[=(\[{,+\-*/@:<>%&|^]|\b(?:return|in|and|or|not|if|else|is))\s*\($")


def without_parentheses(source: SourceFile, span: Span) -> Span:
    """The span with the parentheses that group it and nothing else: a kernel call needs none."""
    line = source.text[source.line_starts[source.position(span.start)[0] - 1] : span.start]
    grouped = source.text[span.end : span.end + 1] == b")" and _BEFORE_GROUP.search(line)
    return Span(span.start - 1, span.end + 1) if grouped else span


@functools.lru_cache(maxsize=4)
def _line_limit(source: SourceFile) -> int:
    """The line length that the file itself keeps to: 88, 100 or 119."""
    longest = max((len(line) for line in source.text.splitlines()), default=0)
    return next((limit for limit in (88, 100) if longest <= limit), 119)


def indentation(source: SourceFile, offset: int) -> str:
    line = source.line(source.position(offset)[0])
    return line[: len(line) - len(line.lstrip())]


def indent_unit(source: SourceFile) -> str:
    """One step of indentation, as the file's first indented line has it."""
    for line in source.text.splitlines():
        if line.startswith(b"\t"):
            return "\t"
        if line.startswith(b" ") and line.strip() and not line.lstrip().startswith((b"#", b'"', b"'")):
            return " " * min(len(line) - len(line.lstrip()), 4)
    return "    "
