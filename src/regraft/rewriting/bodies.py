"""Rewriting of a whole body: one `return` of the kernel's call."""

from __future__ import annotations

import ast

from regraft.dsl.syntax import Operand, Ref, Var
from regraft.matching.bodies import BodyMatch
from regraft.rewriting.render import Withheld
from regraft.source.imports import Imports
from regraft.source.layout import Layout, indentation
from regraft.source.names import walk
from regraft.source.text import Edit, Span


def rewrite_body(match: BodyMatch, imports: Imports) -> tuple[Edit, Span, frozenset[str]] | Withheld:
    """The body as one `return` of the kernel's call: the edit, what it replaces, and what must be imported."""
    source, statements = imports.source, match.statements
    line = statements[0].lineno
    whole = Span(source.span(statements[0]).start, source.span(statements[-1]).end)
    if any(whole.start < comment.start < whole.end for comment in source.comments_near(whole)):
        return Withheld("a comment stands inside the code that would change", line)
    if source.text[source.line_starts[line - 1] : whole.start].strip():
        return Withheld("several statements share a line", line)
    if any("jit" in ast.unparse(one) for one in match.function.decorator_list):
        return Withheld("TorchScript compiles this function, and would have to compile the kernel", line)
    if any(isinstance(one, ast.Yield | ast.YieldFrom | ast.Await) for one in walk(match.function)):
        return Withheld("the function is a generator", line)
    if imports.obstacle:
        return Withheld(imports.obstacle, line)
    apply = match.pattern.target.apply
    assert isinstance(apply.callee, Ref)

    def text(operand: Operand) -> str:
        return source.segment(match.bindings[operand.name]) if isinstance(operand, Var) else repr(operand.value)  # type: ignore[union-attr]

    given = [*map(text, apply.args), *(f"{name}={text(value)}" for name, value in apply.keywords)]
    head = "return "
    layout = Layout(source, Span(whole.start, whole.end), indentation(source, whole.start), head)
    call = layout.call(imports.spell(apply.callee.path), given)
    return Edit(whole, head + call), whole, frozenset({apply.callee.path})
