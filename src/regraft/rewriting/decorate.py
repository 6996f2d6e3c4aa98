"""Rewriting of a definition that a decorator marks: one line above it, and above the classes that call it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from regraft.matching.definitions import Definition, definition
from regraft.matching.pattern import Decorator
from regraft.matching.result import Match
from regraft.rewriting.render import Withheld
from regraft.rewriting.single_output import Patch
from regraft.source.imports import Imports
from regraft.source.layout import indentation
from regraft.source.names import walk
from regraft.source.text import Edit, Span
from regraft.structure.frame import Function


def decorate(match: Match, imports: Imports) -> Patch:
    """The patch that marks the definition of a match; raises Withheld."""
    decorator = match.pattern.decorator
    assert decorator is not None
    marked = definition(match)
    _check(marked, decorator, imports)
    arguments = ", ".join(
        f'"{one.value}"' if isinstance(one.value, str) else repr(one.value) for one in decorator.arguments
    )
    edits = [_above(marked, f"@{imports.spell(decorator.path)}({arguments})", imports)]
    uses = {decorator.path}
    called = isinstance(marked, Function) and bool(decorator.callers)
    callers = tuple(_callers(marked, decorator, imports)) if called else ()
    for cls in callers:
        edits.append(_above(cls, f"@{imports.spell(decorator.callers)}({marked.name})", imports))
        uses.add(decorator.callers)
    spans = [imports.source.span(marked), *(edit.span for edit in edits)]
    extent = Span(min(one.start for one in spans), max(one.end for one in spans))
    also = tuple(cls.name for cls in callers)
    return Patch(match, "decorate", tuple(sorted(edits)), extent, frozenset(uses), also)


def _check(marked: Definition, decorator: Decorator, imports: Imports) -> None:
    source, line = imports.source, marked.lineno
    package = decorator.path.partition(".")[0]
    if imports.obstacle:
        raise Withheld(imports.obstacle, line)
    if not any(name.partition(".")[0] == package for name in imports.names.qualified.values()):
        raise Withheld(f"the file imports nothing of {package}, which gives the decorator its meaning", line)
    if "kernel" in source.segment(marked).lower():
        raise Withheld("a note in the definition speaks of kernels: read it first", line)
    if b"torch.jit.script" in source.text:
        raise Withheld("TorchScript may compile what calls this definition", line)
    if isinstance(marked, ast.ClassDef):
        return
    called = {one.func for one in walk(source.tree) if isinstance(one, ast.Call)}
    for one in walk(source.tree):
        if isinstance(one, ast.Name) and one.id == marked.name and one not in called:
            raise Withheld("the function is used as a value, and the decorator makes it a module", one.lineno)


def _callers(marked: Definition, decorator: Decorator, imports: Imports) -> Iterator[ast.ClassDef]:
    """Classes of the file that call a function and are not marked yet; raises Withheld for one above it."""
    for cls in imports.source.tree.body:
        if not isinstance(cls, ast.ClassDef):
            continue
        calls = (one.func for one in walk(cls) if isinstance(one, ast.Call))
        if not any(isinstance(one, ast.Name) and one.id == marked.name for one in calls):
            continue
        if cls.lineno < marked.lineno:
            raise Withheld(f"{cls.name}, which calls the function, stands above it", cls.lineno)
        yield cls


def _above(node: Definition, text: str, imports: Imports) -> Edit:
    """The line directly above a definition."""
    source = imports.source
    start = source.line_starts[node.lineno - 1]
    indent = indentation(source, start)
    return Edit(Span(start, start), f"{indent}{text}{source.newline}")
