"""Rewriting of a whole function body to one `return` of the kernel call, and of a block to the
call."""

from __future__ import annotations

import ast

from regraft.dsl.syntax import Operand, Ref, Var
from regraft.matching.whole_bodies import BodyMatch
from regraft.rewriting.withheld import Withheld
from regraft.source.imports import Imports
from regraft.source.layout import Layout, indentation
from regraft.source.syntax_iterators import walk
from regraft.source.text import Edit, SourceFile, Span


def rewrite_body(
    match: BodyMatch, imports: Imports
) -> tuple[Edit, Span, frozenset[str]] | Withheld:
    """Return the edit that replaces the whole body of a matched function by one `return` of the
    kernel call, or a block in it by the call, the span that it replaces and the qualified names
    that the file then has to import.

    Where that would not be safe, a Withheld with the reason is returned, not raised.
    """
    source, statements = imports.source, match.statements
    line = statements[0].lineno
    span = Span(source.span(statements[0]).start, source.span(statements[-1]).end)
    obstacle = _obstacle(match, span, imports)
    if obstacle:
        return Withheld(obstacle, line)
    apply = match.pattern.target.apply
    assert isinstance(apply.callee, Ref)
    arguments = [_text(operand, match, source) for operand in apply.args]
    arguments += [f"{name}={_text(value, match, source)}" for name, value in apply.keywords]
    head = "" if match.pattern.is_block else "return "
    layout = Layout(source, Span(span.start, span.end), indentation(source, span.start), head)
    call = layout.call(imports.spell(apply.callee.path), arguments)
    return Edit(span, head + call), span, frozenset({apply.callee.path})


def _text(operand: Operand, match: BodyMatch, source: SourceFile) -> str:
    """Return the source text of the expression that a variable stands for, or the `repr` of a
    constant."""
    if isinstance(operand, Var):
        return source.segment(match.bindings[operand.name])
    return repr(operand.value)  # type: ignore[union-attr]


def _obstacle(match: BodyMatch, span: Span, imports: Imports) -> str:
    """Return why it would not be safe to replace the matched statements, which are in `span`; ""
    where it is."""
    source, line = imports.source, match.statements[0].lineno
    if any(span.start < comment.start < span.end for comment in source.comments_near(span)):
        return "a comment stands inside the code that would change"
    if source.text[source.line_starts[line - 1] : span.start].strip():
        return "several statements share a line"
    if any("jit" in ast.unparse(decorator) for decorator in match.function.decorator_list):
        return "TorchScript compiles this function, and would have to compile the kernel"
    if not match.pattern.is_block and any(
        isinstance(node, ast.Yield | ast.YieldFrom | ast.Await) for node in walk(match.function)
    ):
        return "the function is a generator"
    return imports.obstacle
