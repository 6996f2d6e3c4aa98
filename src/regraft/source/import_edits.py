"""Edits that add imports to a file, beside those that it has."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from regraft.source.text import Edit, SourceFile, Span


def existing_import(tree: ast.Module, spelling: str) -> ast.ImportFrom | None:
    """Return the import `from <spelling> import ...` at the top level of a file; None where there
    is none."""
    module = spelling.lstrip(".")
    level = len(spelling) - len(module)
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == module and node.level == level:
            return node
    return None


def extension_edit(source: SourceFile, node: ast.ImportFrom, added: Sequence[str]) -> Edit:
    """Return the edit that adds names to an import."""
    end = source.span(node.names[-1]).end
    return Edit(Span(end, end), "".join(f", {name}" for name in added))


def relative_import_edit(source: SourceFile, module: str, line: str) -> Edit:
    """Return the edit that adds a relative import among those with as many dots, in alphabetical
    place."""
    name = module.lstrip(".")
    level = len(module) - len(name)
    nodes = [
        node
        for node in source.tree.body
        if isinstance(node, ast.ImportFrom) and node.level == level
    ]
    next_import = next((node for node in nodes if (node.module or "") > name), None)
    start = source.line_starts[
        next_import.lineno - 1 if next_import is not None else nodes[-1].end_lineno or 0
    ]
    return Edit(Span(start, start), line + source.newline)


def insertion_edit(source: SourceFile, lines: Sequence[str]) -> Edit:
    """Return the edit that adds lines to the file's last block of absolute imports, in alphabetical
    place. Without such a block the lines come after the docstring, or at the head of the file."""
    block = last_block(source.tree.body)
    body = source.tree.body
    text = source.newline.join(lines)
    next_import = _import_after(lines[-1].split()[1], block)
    if next_import is not None:
        start = source.line_starts[next_import.lineno - 1]
        return Edit(Span(start, start), text + source.newline)
    anchor = block[-1] if block else _docstring(body)
    if anchor is None:
        start = source.line_starts[(body[0].lineno if body else 1) - 1]
        return Edit(Span(start, start), text + source.newline * 2)
    end = source.span(anchor).end
    gap = "" if block else source.newline
    line_end = source.line_starts[source.position(end)[0]]
    if source.text[:line_end].endswith((b"\n", b"\r")):
        return Edit(Span(line_end, line_end), gap + text + source.newline)
    return Edit(Span(line_end, line_end), source.newline + gap + text)


def _import_after(module: str, block: Sequence[ast.stmt]) -> ast.ImportFrom | None:
    """Return the first import of a block, at the start of a line, whose module comes after `module`
    in the alphabet; None where there is none."""
    for node in block:
        starts_line = node.col_offset == 0
        if starts_line and isinstance(node, ast.ImportFrom) and (node.module or "") > module:
            return node
    return None


def _docstring(body: Sequence[ast.stmt]) -> ast.stmt | None:
    """Return the statement that is the docstring of a file; None where there is none."""
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        return body[0]
    return None


def last_block(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the last group of adjacent absolute imports before the first definition."""
    block: list[ast.stmt] = []
    for node in body:
        if _is_absolute_import(node):
            is_adjacent = block and node.lineno == (block[-1].end_lineno or 0) + 1
            block = [*block, node] if is_adjacent else [node]
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            break
    if block and isinstance(block[-1], ast.ImportFrom) and block[-1].module == "__future__":
        return block[-1:]
    return block


def _is_absolute_import(node: ast.stmt) -> bool:
    """Return whether a statement is an import that is not relative to the file's package."""
    return isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.level == 0)
