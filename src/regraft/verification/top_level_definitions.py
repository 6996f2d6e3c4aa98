"""The top-level definitions of a file, with the lines that they stand on."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class DefinitionBlock:
    """One top-level definition with its first and last line, decorators included."""

    node: Definition
    first: int
    last: int


def definition_blocks(tree: ast.Module) -> dict[str, DefinitionBlock]:
    """Return the top-level definitions by name, those under a top-level `if`, `try` or `with`
    included. The first definition of a name `f` has the key `f`, the later ones `f#2`, `f#3` and so
    on."""
    blocks: dict[str, DefinitionBlock] = {}
    for node in _definitions(tree.body):
        name, count = node.name, 1
        while name in blocks:
            count += 1
            name = f"{node.name}#{count}"
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        blocks[name] = DefinitionBlock(node, first, node.end_lineno or node.lineno)
    return blocks


def definitions_by_name(tree: ast.Module) -> dict[str, Definition]:
    """Return the top-level definitions of a file by the names that changes use: a second `f` is
    `f#2`."""
    return {name: block.node for name, block in definition_blocks(tree).items()}


def _definitions(body: Iterable[ast.stmt]) -> Iterator[Definition]:
    """Yield the definitions among some statements and inside of their `if`, `try` and `with`
    blocks, top to bottom; those inside of other definitions are left out."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _definitions(_nested_statements(node))


def _nested_statements(node: ast.If | ast.Try | ast.With) -> Iterator[ast.stmt]:
    """Yield the statements in the blocks of a statement, top to bottom."""
    for field in ("body", "handlers", "orelse", "finalbody"):
        for statement in getattr(node, field, []):
            if isinstance(statement, ast.ExceptHandler):
                yield from statement.body
            else:
                yield statement
