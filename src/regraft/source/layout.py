"""The layout of rewritten code: indentation and line breaks after the file's own habits."""

from __future__ import annotations

import re
from dataclasses import dataclass

from regraft.source.line_length import line_length_of
from regraft.source.text import SourceFile, Span


@dataclass(frozen=True, slots=True)
class Layout:
    """The place of a call, which is broken over lines where it is too long.

    span    the text that the call replaces
    indent  the indentation of the call's line
    head    text before the call on its line
    """

    source: SourceFile
    span: Span
    indent: str
    head: str = ""

    def call(self, function: str, arguments: list[str]) -> str:
        """Return the text of a call: on one line if it fits, else with the arguments on one line or
        on a line each."""
        inline = f"{function}({', '.join(arguments)})"
        line_start = self.source.line_starts[self.source.position(self.span.start)[0] - 1]
        text_before = self.source.text[line_start : self.span.start].decode()
        text_after = self.source.text[self.span.end :].split(b"\n", 1)[0].decode()
        limit = line_length_of(self.source)
        line = self.indent + text_before.lstrip() + self.head + inline + text_after
        if len(line) <= limit or not arguments:
            return inline
        newline, unit = self.source.newline, indent_unit(self.source)
        argument_line = self.indent + unit + ", ".join(arguments)
        if len(argument_line) <= limit:
            return f"{function}({newline}{argument_line}{newline}{self.indent})"
        argument_lines = "".join(
            f"{self.indent}{unit}{_indent_later_lines(argument, unit)},{newline}"
            for argument in arguments
        )
        return f"{function}({newline}{argument_lines}{self.indent})"


def _indent_later_lines(argument: str, unit: str) -> str:
    """Return an argument with its later lines one step deeper.

    An argument that may hold a string of several lines stays as it is.
    """
    if '"""' in argument or "'''" in argument:
        return argument
    return argument.replace("\n", "\n" + unit)


_BEFORE_GROUP = re.compile(
    rb"(?:[=(\[{,+\-*/@:<>%&|^]|\b(?:return|in|and|or|not|if|else|is))\s*\($"
)


def without_parentheses(source: SourceFile, span: Span) -> Span:
    """Return the span with parentheses that only group it, which a kernel call does not need."""
    number = source.position(span.start)[0] - 1
    text = source.text[source.line_starts[number] : span.start]
    if text.strip() == b"(" and number:
        line_before = source.text[source.line_starts[number - 1] : source.line_starts[number]]
        text = b"" if b"#" in line_before else line_before.rstrip() + text
    is_grouped = source.text[span.end : span.end + 1] == b")" and _BEFORE_GROUP.search(text)
    return Span(span.start - 1, span.end + 1) if is_grouped else span


def indentation(source: SourceFile, offset: int) -> str:
    """Return the blanks at the head of the line of a byte offset."""
    line = source.line(source.position(offset)[0])
    return line[: len(line) - len(line.lstrip())]


def indent_unit(source: SourceFile) -> str:
    """Return one step of indentation, as the file's first indented line has it; at most 4
    blanks."""
    for line in source.text.splitlines():
        if line.startswith(b"\t"):
            return "\t"
        if (
            line.startswith(b" ")
            and line.strip()
            and not line.lstrip().startswith((b"#", b'"', b"'"))
        ):
            return " " * min(len(line) - len(line.lstrip()), 4)
    return "    "
