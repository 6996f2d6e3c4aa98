"""The rewriting of a definition that a decorator marks: one line above it, and one above each class
that calls it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from regraft.matching.decorated_definitions import Definition, definition
from regraft.matching.pattern import Decorator
from regraft.matching.result import Match
from regraft.rewriting.single_output import Patch
from regraft.rewriting.withheld import Withheld
from regraft.source.imports import Imports
from regraft.source.layout import indentation
from regraft.source.syntax_iterators import walk
from regraft.source.text import Edit, Span
from regraft.structure.function_surroundings import Function


def decorate(match: Match, imports: Imports) -> Patch:
    """Return the patch that puts the pattern's decorator above the matched definition, and, where a
    function is marked, another one above each class that calls it. Raises Withheld where that is
    not safe."""
    decorator = match.pattern.decorator
    assert decorator is not None
    marked = definition(match)
    _check_markable(marked, decorator, imports)
    arguments = ", ".join(
        f'"{argument.value}"' if isinstance(argument.value, str) else repr(argument.value)
        for argument in decorator.arguments
    )
    edits = [_insert_line_above(marked, f"@{imports.spell(decorator.path)}({arguments})", imports)]
    uses = {decorator.path}
    is_called = isinstance(marked, Function) and bool(decorator.callers)
    callers = tuple(_calling_classes(marked, decorator, imports)) if is_called else ()
    for cls in callers:
        line = f"@{imports.spell(decorator.callers)}({marked.name})"
        edits.append(_insert_line_above(cls, line, imports))
        uses.add(decorator.callers)
    spans = [imports.source.span(marked), *(edit.span for edit in edits)]
    extent = Span(min(span.start for span in spans), max(span.end for span in spans))
    also = tuple(cls.name for cls in callers)
    return Patch(match, "decorate", tuple(sorted(edits)), extent, frozenset(uses), also)


def _check_markable(marked: Definition, decorator: Decorator, imports: Imports) -> None:
    """Raise Withheld where the file imports nothing of the decorator's package, TorchScript may
    compile the definition, its text contains the word "kernel", or a function is used other than by
    calls."""
    source, line = imports.source, marked.lineno
    package = decorator.path.partition(".")[0]
    if imports.obstacle:
        raise Withheld(imports.obstacle, line)
    if not any(name.partition(".")[0] == package for name in imports.names.qualified.values()):
        raise Withheld(
            f"the file imports nothing of {package}, which gives the decorator its meaning", line
        )
    if "kernel" in source.segment(marked).lower():
        raise Withheld("a note in the definition speaks of kernels: read it first", line)
    if b"torch.jit.script" in source.text:
        raise Withheld("TorchScript may compile what calls this definition", line)
    if not isinstance(marked, ast.ClassDef):
        _check_never_a_value(marked.name, source.tree)


def _check_never_a_value(function: str, tree: ast.Module) -> None:
    """Raise Withheld where the name of a function is read anywhere else than as what a call calls:
    the decorator turns the function into a module."""
    callees = {ast_node.func for ast_node in walk(tree) if isinstance(ast_node, ast.Call)}
    for ast_node in walk(tree):
        is_name = isinstance(ast_node, ast.Name) and ast_node.id == function
        if is_name and ast_node not in callees:
            raise Withheld(
                "the function is used as a value, and the decorator makes it a module",
                ast_node.lineno,  # type: ignore[attr-defined]
            )


def _calling_classes(
    marked: Definition, decorator: Decorator, imports: Imports
) -> Iterator[ast.ClassDef]:
    """Yield the classes at the top of the file in which the marked function is called by its name;
    raise Withheld for one that stands above the function."""
    for cls in imports.source.tree.body:
        if not isinstance(cls, ast.ClassDef):
            continue
        callees = (ast_node.func for ast_node in walk(cls) if isinstance(ast_node, ast.Call))
        if not any(isinstance(callee, ast.Name) and callee.id == marked.name for callee in callees):
            continue
        if cls.lineno < marked.lineno:
            raise Withheld(f"{cls.name}, which calls the function, stands above it", cls.lineno)
        yield cls


def _insert_line_above(node: Definition, text: str, imports: Imports) -> Edit:
    """Return the edit that inserts `text` as a line directly above `def` or `class`, below other
    decorators, with the same indentation."""
    source = imports.source
    start = source.line_starts[node.lineno - 1]
    indent = indentation(source, start)
    return Edit(Span(start, start), f"{indent}{text}{source.newline}")
