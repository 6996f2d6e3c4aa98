"""The rewriting of a match with several outputs: one call gives them all before the first of their
statements.

q = self.q(x)                              q, k = kernel(x, self.q, self.k)
y = self.k(x) * scale         becomes      y = k * scale

Statements of inner steps before the call are deleted, as in a match with one output.
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

_CONDITIONAL = (
    ast.IfExp,
    ast.BoolOp,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)


class MultipleOutputRewriter(Rewriter):
    """A maker of the patch of one match with several outputs, in mode substitute."""

    def patch(self) -> Patch:
        roots = self.match.roots
        for root in roots:
            self._check_root(root)
        first_name = self._assigned_name(roots[0])
        statements = list(dict.fromkeys(root.statement for root in roots))
        first = statements[0]
        inner = [node for node in self.match.nodes if node.statement not in statements]
        for node in inner:
            if node.statement.block != first.block or node.time > roots[0].time:
                raise self._withholding("an inner step is part of another statement", node)
        plan = self._plan()
        reduced_names = {
            value: target_name(statement.node) or "" for statement, value in plan.reduced.items()
        }
        self._check_reduced(plan, reduced_names)
        self._check_between(
            min(
                roots[0].time if first_name else first.time,
                *(node.time for node in inner),
                roots[0].time,
            )
        )
        first_lines = self._own_lines(first, self.source.span(first.node))
        indent = indentation(self.source, first_lines.start)
        adjacent = self._all_assigned(statements)
        names = (
            [target_name(statement.node) or "" for statement in statements]
            if adjacent
            else self._new_names(first_name)
        )
        span = Span(first_lines.start + len(indent), self.source.span(first.node).end)
        if first_name:
            self._check_comments(self.source.span(first.node), roots[0])
        time = 0 if first_name else first.time + 1
        renderer = Renderer(
            self.match, self.imports, span, plan.deleted, reduced_names, root=roots[0], time=time
        )
        head = f"{', '.join(names)} = "
        call = renderer.call(
            self.match.pattern.target, Layout(self.source, span, indent, head).call
        )
        if not renderer.is_in_order():
            raise self._withholding(
                "the kernel would evaluate its arguments in another order", roots[0]
            )
        line = f"{head}{call}"
        if adjacent:
            edits = [
                Edit(self.source.span(first.node), line),
                *(self._deletion(statement) for statement in statements[1:]),
            ]
        else:
            added = Edit(Span(span.start, span.start), f"{line}{self.source.newline}{indent}")
            edits = [Edit(self.source.span(first.node), line) if first_name else added]
            for name, root in list(zip(names, roots, strict=True))[bool(first_name) :]:
                assert isinstance(root.expr, ast.expr)
                edits.append(
                    Edit(without_parentheses(self.source, self.source.span(root.expr)), name)
                )
        edits += self._statement_edits(plan)
        starts = [
            self.source.span(statement.node).start for statement in (*plan.deleted, *plan.reduced)
        ]
        extent = Span(min([first_lines.start, *starts]), self.source.span(statements[-1].node).end)
        return Patch(
            self.match, "substitute", tuple(sorted(edits)), extent, frozenset(renderer.used)
        )

    def _check_root(self, root: Node) -> None:
        """Raise Withheld where an output is not computed unconditionally in the same block as the
        last output."""
        if not isinstance(root.expr, ast.expr):
            raise self._withholding("the layer is called by an in-place statement", root)
        self._check_places(root.expr, root)
        if root.statement.block != self.root.statement.block:
            raise self._withholding("the layers are called in different branches", root)
        if root.loop != root.statement.loop or root.guard != self.root.guard:
            raise self._withholding("a layer is called under a condition of its own", root)
        for outer in ast.walk(root.statement.node):
            if isinstance(outer, _CONDITIONAL) and any(
                inner is root.expr for inner in ast.walk(outer)
            ):
                raise self._withholding("a layer is called inside a conditional expression", root)
        if not isinstance(root.statement.node, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr):
            raise self._withholding("a layer is called in the head of a statement", root)

    def _check_between(self, start: int) -> None:
        """Raise Withheld where a node between `start` and the last layer has an effect, is random
        or checks something.

        The later layers move before the first one: what stands in between must neither change nor
        show what they compute.
        """
        for node in self.match.between(start, self.match.roots[-1].time):
            if (
                node.effect
                or node.random
                or isinstance(node.statement.node, ast.Assert | ast.Raise)
            ):
                line = getattr(node.expr, "lineno", node.statement.node.lineno)
                raise Withheld(
                    f"{node.spelling or 'a call'} at line {line} stands between the layers", line
                )

    def _all_assigned(self, statements: list[Statement]) -> bool:
        """Return whether the statements are adjacent and each is `name = <layer call>` with a name
        of its own."""
        names = {target_name(statement.node) for statement in statements}
        are_plain = all(
            isinstance(statement.node, ast.Assign)
            and any(root.expr is statement.node.value for root in self.match.roots)
            for statement in statements
        )
        block = self._block_around(statements[0].node)
        start = block.index(statements[0].node)
        are_adjacent = all(
            statement.node is sibling
            for statement, sibling in zip(statements, block[start:], strict=False)
        )
        return (
            are_plain
            and are_adjacent
            and None not in names
            and len(names) == len(statements) == len(self.match.roots)
        )

    def _assigned_name(self, root: Node) -> str:
        """Return the name that a statement binds to an output and nothing else; "" where the
        statement does more."""
        statement = root.statement.node
        is_alone = isinstance(statement, ast.Assign) and statement.value is root.expr
        return (target_name(statement) or "") if is_alone else ""

    def _new_names(self, first: str) -> list[str]:
        """Return a name for each output, after its layer or its input, that neither the function
        nor the file uses.

        first  the name that the first output has already; "" where it has none
        """
        function = ast.walk(self.match.body.node)
        used = {ast_node.id for ast_node in function if isinstance(ast_node, ast.Name)} | set(
            self.match.body.log
        )
        used |= self.imports.names.bound | set(dir(builtins))
        names: list[str] = []
        inputs = [
            self.match.bindings[operand.name]
            for operand in self.match.pattern.target.args
            if isinstance(operand, Var)
        ]
        for number, root in enumerate(self.match.roots):
            base = (root.layer.name if root.layer is not None else "").rpartition(".")[2]
            if root.layer is None and number < len(inputs):
                base = next(
                    (name for name in inputs[number].names if name.isidentifier()),
                    inputs[number].name,
                )
            base = base if base.isidentifier() else "output"
            candidates = (
                base,
                f"{base}_output",
                *(f"{base}_output{number}" for number in range(2, 99)),
            )
            names.append(
                next(
                    candidate
                    for candidate in candidates
                    if candidate not in used and candidate not in names
                )
            )
        return [first or names[0], *names[1:]]
