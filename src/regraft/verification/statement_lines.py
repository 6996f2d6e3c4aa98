"""The lines of a file and the statements that stand on them."""

from __future__ import annotations

import ast
import difflib
from types import CodeType

Span = tuple[int, int]


def text_lines(text: bytes) -> list[bytes]:
    """Return the lines of a text, split at the parser's line ends; form feeds and Unicode
    separators are none."""
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")


def changed_lines(
    old_lines: list[bytes], new_lines: list[bytes], first_line: int
) -> tuple[int, ...]:
    """Return the numbers of the lines of the new text that differ from the old one; the new text
    begins at line `first_line`.

    Deleted lines are represented by the line that took their place, or by the last one.
    """
    lines: list[int] = []
    matcher = difflib.SequenceMatcher(None, old_lines, new_lines, autojunk=False)
    for tag, _, _, start, end in matcher.get_opcodes():
        if tag == "delete":
            lines.append(first_line + min(start, len(new_lines) - 1))
        elif tag != "equal":
            lines.extend(range(first_line + start, first_line + end))
    return tuple(sorted(set(lines)))


def executable_lines(code: CodeType) -> frozenset[int]:
    """Return every line of a module's code object, nested functions included, that the interpreter
    can run."""
    lines = {line for _, _, line in code.co_lines() if line}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            lines |= executable_lines(constant)
    return frozenset(lines)


def lines_of(node: ast.stmt | ast.expr) -> range:
    """Return the numbers of the lines that a node spans."""
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def header_span(node: ast.stmt) -> Span:
    """Return the first and last line of a statement itself: for a compound statement, of the lines
    before its body."""
    end = node.end_lineno or node.lineno
    body = getattr(node, "body", None)
    if body and isinstance(body, list):
        body_start = min(
            getattr(body[0], "lineno", end),
            *(d.lineno for d in getattr(body[0], "decorator_list", [])),
            end,
        )
        end = max(node.lineno, body_start - 1)
    return node.lineno, end


def statement_spans(
    root: ast.AST, lines: tuple[int, ...], runnable: frozenset[int]
) -> tuple[Span, ...]:
    """Return the spans (first line, last line) of the smallest statements below `root` that stand
    on one of the lines and contain a runnable line, sorted; of a compound statement the span of its
    head."""
    spans = sorted({header_span(node) for node in ast.walk(root) if isinstance(node, ast.stmt)})
    smallest: set[Span] = set()
    for line in lines:
        enclosing = [span for span in spans if span[0] <= line <= span[1]]
        if enclosing:
            smallest.add(min(enclosing, key=lambda span: span[1] - span[0]))
    return tuple(sorted(span for span in smallest if _has_code(span, runnable)))


def _has_code(span: Span, runnable: frozenset[int]) -> bool:
    """Return whether a span contains a line that the interpreter can run."""
    first, last = span
    return any(line in runnable for line in range(first, last + 1))
