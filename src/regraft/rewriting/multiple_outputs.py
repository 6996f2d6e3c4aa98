"""Rewriting a match with several outputs: one call gives them all before the first of their statements.

q = self.q(x)                              q, k = kernel(x, self.q, self.k)
y = self.k(x) * scale         becomes      y = k * scale

Inner steps before that go, as in a match with one output.
"""

from __future__ import annotations

import ast
import builtins

from regraft.dsl.syntax import Var
from regraft.rewriting.render import Renderer, Withheld
from regraft.rewriting.single_output import Patch, Rewriter, target_name
from regraft.source.layout import Layout, indentation, without_parentheses
from regraft.source.text import Edit, Span
from regraft.structure.model import Node, Statement

_CONDITIONAL = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class SeveralRewriter(Rewriter):
    """The patch of a match with several outputs, mode substitute; raises Withheld."""

    def patch(self) -> Patch:
        roots = self.match.roots
        for root in roots:
            self._check_root(root)
        own = self._assigned(roots[0])
        statements = list(dict.fromkeys(root.statement for root in roots))
        first = statements[0]
        inner = [node for node in self.match.nodes if node.statement not in statements]
        for node in inner:
            if node.statement.block != first.block or node.time > roots[0].time:
                raise self._withheld("an inner step is part of another statement", node)
        plan = self._plan()
        kept = {value: target_name(statement.node) or "" for statement, value in plan.kept.items()}
        self._check_kept(plan, kept)
        self._check_between(min(roots[0].time if own else first.time, *(node.time for node in inner), roots[0].time))
        whole = self._own_lines(first, self.source.span(first.node))
        indent = indentation(self.source, whole.start)
        adjacent = self._all_assigned(statements)
        names = [target_name(one.node) or "" for one in statements] if adjacent else self._new_names(own)
        span = Span(whole.start + len(indent), self.source.span(first.node).end)
        if own:
            self._check_comments(self.source.span(first.node), roots[0])
        time = 0 if own else first.time + 1
        renderer = Renderer(self.match, self.imports, span, plan.deleted, kept, root=roots[0], time=time)
        head = f"{', '.join(names)} = "
        call = renderer.call(self.match.pattern.target, Layout(self.source, span, indent, head).call)
        if not renderer.in_order():
            raise self._withheld("the kernel would evaluate its arguments in another order", roots[0])
        line = f"{head}{call}"
        if adjacent:
            edits = [Edit(self.source.span(first.node), line), *(self._deletion(one) for one in statements[1:])]
        else:
            added = Edit(Span(span.start, span.start), f"{line}{self.source.newline}{indent}")
            edits = [Edit(self.source.span(first.node), line) if own else added]
            for name, root in list(zip(names, roots, strict=True))[bool(own) :]:
                assert isinstance(root.expr, ast.expr)
                edits.append(Edit(without_parentheses(self.source, self.source.span(root.expr)), name))
        edits += self._statement_edits(plan)
        before = [self.source.span(one.node).start for one in (*plan.deleted, *plan.kept)]
        extent = Span(min([whole.start, *before]), self.source.span(statements[-1].node).end)
        return Patch(self.match, "substitute", tuple(sorted(edits)), extent, frozenset(renderer.used))

    def _check_root(self, root: Node) -> None:
        if not isinstance(root.expr, ast.expr):
            raise self._withheld("the layer is called by an in-place statement", root)
        self._check_places(root.expr, root)
        if root.statement.block != self.root.statement.block:
            raise self._withheld("the layers are called in different branches", root)
        if root.loop != root.statement.loop or root.guard != self.root.guard:
            raise self._withheld("a layer is called under a condition of its own", root)
        for outer in ast.walk(root.statement.node):
            if isinstance(outer, _CONDITIONAL) and any(inner is root.expr for inner in ast.walk(outer)):
                raise self._withheld("a layer is called inside a conditional expression", root)
        if not isinstance(root.statement.node, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr):
            raise self._withheld("a layer is called in the head of a statement", root)

    def _check_between(self, start: int) -> None:
        """The later layers move before the first: nothing in between may change what they see or be seen to change."""
        for node in self.match.between(start, self.match.roots[-1].time):
            if node.effect or node.random or isinstance(node.statement.node, ast.Assert | ast.Raise):
                line = getattr(node.expr, "lineno", node.statement.node.lineno)
                raise Withheld(f"{node.spelling or 'a call'} at line {line} stands between the layers", line)

    def _all_assigned(self, statements: list[Statement]) -> bool:
        """`name = <layer call>` three times in a row, each with another name."""
        names = {target_name(one.node) for one in statements}
        plain = all(
            isinstance(one.node, ast.Assign) and any(root.expr is one.node.value for root in self.match.roots)
            for one in statements
        )
        around = self._statements_around(statements[0].node)
        start = around.index(statements[0].node)
        row = all(one.node is here for one, here in zip(statements, around[start:], strict=False))
        return plain and row and None not in names and len(names) == len(statements) == len(self.match.roots)

    def _assigned(self, root: Node) -> str:
        """The name that a statement binds to an output and nothing else; "" where it does more."""
        statement = root.statement.node
        alone = isinstance(statement, ast.Assign) and statement.value is root.expr
        return (target_name(statement) or "") if alone else ""

    def _new_names(self, first: str) -> list[str]:
        """A name for each output, after its layer or its input, that the function and the module do not use.

        first  the name that the first output has already, if it has one
        """
        function = ast.walk(self.match.body.node)
        used = {one.id for one in function if isinstance(one, ast.Name)} | set(self.match.body.log)
        used |= self.imports.names.bound | set(dir(builtins))
        names: list[str] = []
        inputs = [self.match.bindings[one.name] for one in self.match.pattern.target.args if isinstance(one, Var)]
        for number, root in enumerate(self.match.roots):
            base = (root.layer.name if root.layer is not None else "").rpartition(".")[2]
            if root.layer is None and number < len(inputs):
                base = next((one for one in inputs[number].names if one.isidentifier()), inputs[number].name)
            base = base if base.isidentifier() else "output"
            candidates = (base, f"{base}_output", *(f"{base}_output{number}" for number in range(2, 99)))
            names.append(next(one for one in candidates if one not in used and one not in names))
        return [first or names[0], *names[1:]]
