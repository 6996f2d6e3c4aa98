"""The branches that a change adds to a definition or touches in it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from regraft.verification.statement_lines import Span, header_span
from regraft.verification.top_level_definitions import DefinitionBlock


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of a conditional expression; columns count bytes, as in `ast`."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Fallthrough:
    """An `if` without `else`: besides its body, the case "condition false" has to run."""

    header: Span
    body: Span


def fallthrough_spans(entries: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Any, Any]]:
    """Yield the header and the body of each of the fallthroughs `entries`, which are as the JSON
    has them."""
    return ((entry["header"], entry["body"]) for entry in entries)


def if_dumps(block: DefinitionBlock | None) -> frozenset[str]:
    """Return the `ast.dump` of every `if` statement of a definition, at any depth; empty for
    None."""
    nodes = ast.walk(block.node) if block is not None else ()
    return frozenset(ast.dump(node) for node in nodes if isinstance(node, ast.If))


def touched_arms(root: ast.AST, statements: tuple[Span, ...]) -> tuple[Arm, ...]:
    """Return both sides of each conditional expression (`a if b else c`) that begins inside of one
    of the statements."""
    touched = (
        node
        for node in ast.walk(root)
        if isinstance(node, ast.IfExp) and _is_touched(node, statements)
    )
    return tuple(_arm(branch) for node in touched for branch in (node.body, node.orelse))


def _is_touched(node: ast.expr, statements: tuple[Span, ...]) -> bool:
    """Return whether an expression begins inside of one of the statements."""
    return any(start <= node.lineno <= end for start, end in statements)


def _arm(node: ast.expr) -> Arm:
    """Return the lines and columns of one side of a conditional expression."""
    return Arm(
        node.lineno,
        node.col_offset,
        node.end_lineno or node.lineno,
        node.end_col_offset or node.col_offset,
    )


def new_fallthroughs(
    root: ast.AST, old_ifs: frozenset[str], statements: tuple[Span, ...], runnable: frozenset[int]
) -> tuple[Fallthrough, ...]:
    """Return each new `if` without `else` among the statements that the interpreter can run.

    An `if` of the original (its dump is in `old_ifs`) that only moved, such as into the other
    branch of a new condition, has to run with all its lines; its false case need not run, because
    the original has it, too.
    """
    ifs_without_else = (
        node for node in ast.walk(root) if isinstance(node, ast.If) and not node.orelse
    )
    fallthroughs = (
        _fallthrough(node) for node in ifs_without_else if ast.dump(node) not in old_ifs
    )
    return tuple(
        fallthrough
        for fallthrough in fallthroughs
        if fallthrough.header in statements and fallthrough.header[0] in runnable
    )


def _fallthrough(node: ast.If) -> Fallthrough:
    """Return header and body of an `if` without `else`."""
    return Fallthrough(header_span(node), (node.body[0].lineno, node.end_lineno or node.lineno))
