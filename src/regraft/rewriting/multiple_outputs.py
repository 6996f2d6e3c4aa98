"""The rewriting of a match with several outputs: one call gives them all before the first of their
statements.

q = self.q(x)                              q, k = kernel(x, self.q, self.k)
y = self.k(x) * scale         becomes      y = k * scale
q, k = self.q(x), self.k(x)   becomes      q, k = kernel(x, self.q, self.k)

Statements of inner steps before the call are deleted, as in a match with one output.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from dataclasses import dataclass

from regraft.dsl.syntax import Var
from regraft.rewriting.assignments import target_name, unpacks_into_names
from regraft.rewriting.kernel_call_source import Renderer
from regraft.rewriting.single_output import Patch, Rewriter
from regraft.rewriting.superfluous_statements import StatementPlan
from regraft.rewriting.withheld import Withheld
from regraft.source.layout import Layout, indentation, without_parentheses
from regraft.source.text import Edit, Span
from regraft.structure.values_and_nodes import Node, Statement, Value

_CONDITIONAL = (
    ast.IfExp,
    ast.BoolOp,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)


@dataclass(frozen=True, slots=True)
class _CallPlace:
    """The place of the kernel call.

    span         the text from the first output's statement on that the call replaces or precedes
    indent       the indentation of the line
    time         the time at which the call runs; 0 for that of the first output
    is_new_line  whether the call gets a line of its own before the first output's statement
    """

    span: Span
    indent: str
    time: int
    is_new_line: bool


class MultipleOutputRewriter(Rewriter):
    """A maker of the patch of one match with several outputs: one call of the kernel before the
    first of them gives all, in mode substitute. A root is a node that computes an output."""

    def patch(self) -> Patch:
        """Return the patch with one call of the kernel before or in the place of the first output's
        statement, names in the places of the outputs, and the inner statements deleted; the file is
        not changed. Raises Withheld where that is not safe."""
        for root in self.match.roots:
            self._check_root(root)
        first_root = self.match.roots[0]
        statements = list(dict.fromkeys(root.statement for root in self.match.roots))
        inner_nodes = [node for node in self.match.nodes if node.statement not in statements]
        self._check_inner(inner_nodes, statements[0])
        plan = self._plan()
        self._check_reduced(plan)
        first_name = self._assigned_name(first_root)
        start = first_root.time if first_name else statements[0].time
        self._check_between(min(start, first_root.time, *(node.time for node in inner_nodes)))
        unpacked_names = self._unpacked_names(statements)
        place = self._call_place(statements[0], first_name, is_replaced=bool(unpacked_names))
        binds_all = bool(unpacked_names) or self._all_assigned(statements)
        if unpacked_names:
            names = unpacked_names
        elif binds_all:
            names = [target_name(statement.node) or "" for statement in statements]
        else:
            names = self._new_names(first_name)
        line, used = self._call_line(plan, place, names)
        if binds_all:
            edits = self._replacing_edits(statements, line)
        else:
            edits = self._edits_in_place(place, names, line)
        edits += self._statement_edits(plan)
        starts = [
            self.source.span(statement.node).start for statement in (*plan.deleted, *plan.reduced)
        ]
        line_start = place.span.start - len(place.indent)
        extent = Span(min([line_start, *starts]), self.source.span(statements[-1].node).end)
        return Patch(self.match, "substitute", tuple(sorted(edits)), extent, frozenset(used))

    def _check_inner(self, inner_nodes: Sequence[Node], first: Statement) -> None:
        """Raise Withheld where one of the nodes, which are matched but no part of an output's
        statement, runs after the first output or in another block than `first`, its statement."""
        for node in inner_nodes:
            if node.statement.block != first.block or node.time > self.match.roots[0].time:
                raise self._withholding("an inner step is part of another statement", node)

    # the kernel call

    def _call_place(self, first: Statement, first_name: str, *, is_replaced: bool) -> _CallPlace:
        """Return the place of the call: that of the first output's statement, which it replaces,
        where `first_name` is the name that this binds, or where `is_replaced` says so; otherwise a
        new line before the statement."""
        span = self.source.span(first.node)
        lines = self._own_lines(first, span)
        indent = indentation(self.source, lines.start)
        is_new_line = not (first_name or is_replaced)
        if not is_new_line:
            self._check_comments(span, self.match.roots[0])
        time = 0 if first_name else first.time + 1
        return _CallPlace(Span(lines.start + len(indent), span.end), indent, time, is_new_line)

    def _call_line(
        self, plan: StatementPlan, place: _CallPlace, names: Sequence[str]
    ) -> tuple[str, set[str]]:
        """Return the statement that assigns one call of the kernel to `names`, and the qualified
        names to import; raise Withheld where it would evaluate its arguments in another order."""
        renderer = Renderer(
            self.match,
            self.imports,
            place.span,
            plan.deleted,
            plan.reduced_names(),
            root=self.match.roots[0],
            time=place.time,
        )
        head = f"{', '.join(names)} = "
        layout = Layout(self.source, place.span, place.indent, head)
        call = renderer.call(self.match.pattern.target, layout.call)
        if not renderer.is_in_order():
            raise self._withholding(
                "the kernel would evaluate its arguments in another order", self.match.roots[0]
            )
        return f"{head}{call}", renderer.used

    # edits

    def _replacing_edits(self, statements: Sequence[Statement], line: str) -> list[Edit]:
        """Return the edits that replace the first of the outputs' statements by the text `line` and
        delete the others."""
        return [
            Edit(self.source.span(statements[0].node), line),
            *(self._deletion_edit(statement) for statement in statements[1:]),
        ]

    def _edits_in_place(self, place: _CallPlace, names: Sequence[str], line: str) -> list[Edit]:
        """Return the edits that write the line of the call, and each name in the place of its
        output's expression. The first output is excepted where the line replaces its statement."""
        roots = self.match.roots
        if place.is_new_line:
            text = f"{line}{self.source.newline}{place.indent}"
            edits = [Edit(Span(place.span.start, place.span.start), text)]
        else:
            edits = [Edit(self.source.span(roots[0].statement.node), line)]
        start = 0 if place.is_new_line else 1  # the line binds the first output itself
        for name, root in list(zip(names, roots, strict=True))[start:]:
            assert isinstance(root.expr, ast.expr)
            span = without_parentheses(self.source, self.source.span(root.expr))
            edits.append(Edit(span, name))
        return edits

    # checks

    def _check_root(self, root: Node) -> None:
        """Raise Withheld where an output is not computed unconditionally in the block of the last
        output, or its place forbids the rewrite (`_check_places`)."""
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
        """Raise Withheld where an unmatched node that runs between the time `start` and the last
        output has an effect, is random, or is part of an `assert` or `raise`.

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
        """Return whether one assignment of the call can replace all these statements: each is `name
        = <output>` with a different name, they stand one after the other, and every root has
        one."""
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
        are_distinct = None not in names and len(names) == len(statements)
        return are_plain and are_adjacent and are_distinct and len(names) == len(self.match.roots)

    def _unpacked_names(self, statements: list[Statement]) -> list[str]:
        """Return the names to which the only statement assigns the outputs and nothing else, in
        their order, as in `q, k = self.q(x), self.k(x)`; [] for other statements."""
        node = statements[0].node
        if len(statements) > 1 or not isinstance(node, ast.Assign) or not unpacks_into_names(node):
            return []
        span, outputs = self.source.span(node), [root.expr for root in self.match.roots]
        if any(span.touches(comment) for comment in self.source.comments_near(span)):
            return []
        match node:
            case ast.Assign(targets=[ast.Tuple(targets)], value=ast.Tuple(expressions)):
                names = [ast.unparse(target) for target in targets]
                are_outputs = list(map(id, expressions)) == list(map(id, outputs))
                return names if are_outputs and len(set(names)) == len(outputs) else []
        return []

    def _assigned_name(self, root: Node) -> str:
        """Return the name that a statement binds to an output and nothing else; "" where the
        statement does more."""
        statement = root.statement.node
        is_alone = isinstance(statement, ast.Assign) and statement.value is root.expr
        return (target_name(statement) or "") if is_alone else ""

    # names

    def _new_names(self, first: str) -> list[str]:
        """Return a name for each output, after its layer or its input, that is used nowhere in the
        function or file.

        first: the name that the first output has already and keeps; "" where it has none.
        """
        used = self._used_names()
        inputs = [
            self.match.bindings[operand.name]
            for operand in self.match.pattern.target.args
            if isinstance(operand, Var)
        ]
        names: list[str] = []
        for number, root in enumerate(self.match.roots):
            base = _base_name(root, inputs[number] if number < len(inputs) else None)
            numbered = (f"{base}_output{suffix}" for suffix in range(2, 99))
            candidates = (base, f"{base}_output", *numbered)
            names.append(next(name for name in candidates if name not in used))
            used.add(names[-1])
        return [first or names[0], *names[1:]]

    def _used_names(self) -> set[str]:
        """Return the names that a new name must differ from: those of the function, those that the
        file binds, and Python's builtins."""
        ast_nodes = ast.walk(self.match.body.node)
        names = {ast_node.id for ast_node in ast_nodes if isinstance(ast_node, ast.Name)}
        names |= set(self.match.body.log)
        return names | self.imports.names.bound | set(dir(builtins))


def _base_name(root: Node, operand: Value | None) -> str:
    """Return a name for an output: the last part of its layer's path, else a name of the input
    `operand`, else `output`."""
    base = ""
    if root.layer is not None:
        base = root.layer.name.rpartition(".")[2]
    elif operand is not None:
        base = next((name for name in operand.names if name.isidentifier()), operand.name)
    return base if base.isidentifier() else "output"
