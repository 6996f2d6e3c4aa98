"""Iterators over the syntax of a file: its nodes, its statements, those at the top level, and the
defaults of a function."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Iterator, Sequence

_LEAVES = (ast.Name, ast.Constant, ast.expr_context, ast.operator)


def walk(root: ast.AST, lines: Sequence[int] | None = None) -> Iterator[ast.AST]:
    """Yield every node below and including `root`, in no particular order; three times as fast as
    `ast.walk`.

    lines  ascending numbers of lines; statements that stand on none of them are left out
    """
    pending = [root]
    while pending:
        node = pending.pop()
        if lines is not None and isinstance(node, ast.stmt) and not _is_on_lines(node, lines):
            continue
        yield node
        if isinstance(node, _LEAVES):
            continue
        for value in vars(node).values():
            if isinstance(value, ast.AST):
                pending.append(value)
            elif isinstance(value, list):
                pending += [child for child in value if isinstance(child, ast.AST)]


def _is_on_lines(statement: ast.stmt, lines: Sequence[int]) -> bool:
    """Return whether a statement, with its decorators, stands on some of the lines."""
    first = min(
        [statement.lineno, *(node.lineno for node in getattr(statement, "decorator_list", ()))]
    )
    index = bisect_left(lines, first)
    return index < len(lines) and lines[index] <= (statement.end_lineno or statement.lineno)


# the statements of which most code consists
_WITHOUT_BLOCKS = frozenset(
    {ast.Assign, ast.AugAssign, ast.Expr, ast.Return, ast.Raise, ast.Import}
)


def statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield every statement of a block and of the blocks nested in it, also in functions and
    classes, in no particular order."""
    pending = list(body)
    while pending:
        statement = pending.pop()
        yield statement
        if type(statement) in _WITHOUT_BLOCKS:
            continue
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            for child in getattr(statement, block, ()):
                if isinstance(child, ast.stmt):
                    pending.append(child)
                else:
                    pending += child.body


def defaults(arguments: ast.arguments) -> Iterator[tuple[ast.arg, ast.expr]]:
    """Yield the parameters that have a default, with the default."""
    positional = [*arguments.posonlyargs, *arguments.args]
    yield from zip(
        positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True
    )
    for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is not None:
            yield parameter, default


def top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when the module is imported, without those under `if
    TYPE_CHECKING`."""
    for statement in body:
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.dump(statement.test):
            continue  # not bound when the program runs
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With):
            for block in ("body", "orelse", "finalbody"):
                yield from top_level(getattr(statement, block, []))
            for handler in getattr(statement, "handlers", []):
                yield from top_level(handler.body)
