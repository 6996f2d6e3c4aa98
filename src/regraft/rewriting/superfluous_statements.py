"""Plan which statements of a match a rewrite deletes or reduces to an inner expression, and make
the edits of both."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from regraft.matching.constants import number_of
from regraft.matching.result import Match
from regraft.matching.uses import is_size
from regraft.rewriting.assignments import first_name, target_name, unpacks_into_names
from regraft.rewriting.kernel_call_source import Renderer, is_gathered
from regraft.rewriting.match_checks import MatchChecks
from regraft.source.text import Edit, Span
from regraft.structure.values_and_nodes import Node, Statement, Value

_PURE_OPS = frozenset({"py.attr", "py.binary", "py.item", "py.slice", "py.star", "py.tuple"})
# expressions that do more than to give a value
_LASTING_PARTS = (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)


@dataclass(frozen=True, slots=True)
class StatementPlan:
    """The statements other than those of the outputs that a rewrite changes: those that it deletes,
    and those that it reduces to an inner expression.

    reduced  statement → the value of the inner expression that remains of it
    """

    deleted: tuple[Statement, ...]
    reduced: Mapping[Statement, Value]

    def reduced_names(self) -> dict[Value, str]:
        """Return the names that the reduced statements bind, by the values that remain of them."""
        return {value: first_name(statement.node) for statement, value in self.reduced.items()}


class StatementRewriter(MatchChecks):
    """A maker of the edits of the statements whose values the kernel makes superfluous."""

    def _plan(self) -> StatementPlan:
        """Return which statements the kernel makes superfluous: those of inner matched nodes, and
        those that only support them, are deleted, or reduced to an inner expression that computes
        more. No text is changed.

        Raises Withheld where a statement with an inner node cannot be deleted or reduced.
        """
        deleted: list[Statement] = []
        reduced: dict[Statement, Value] = {}
        roots = {root.statement for root in self.match.roots}
        inner_nodes = [node for node in self.match.nodes if node in self.superfluous]
        for statement in dict.fromkeys(node.statement for node in inner_nodes):
            if statement in roots:
                continue
            if not self._is_inner(statement):
                raise self._withholding(
                    "an inner step is part of another statement",
                    _first_node_of(self.match, statement),
                )
            reduced_value = self._reduced_value(statement)
            self._check_lost_parts(statement, reduced_value)
            if reduced_value is None:
                deleted.append(statement)
            else:
                reduced[statement] = reduced_value
        deleted += self._unneeded_statements([*deleted, *reduced])
        return StatementPlan(tuple(deleted), reduced)

    def _check_lost_parts(self, statement: Statement, reduced_value: Value | None) -> None:
        """Raise Withheld where a statement binds a name inside its expression (`:=`), yields or
        awaits, and not inside of what remains of it."""
        remaining = reduced_value.node.expr if reduced_value and reduced_value.node else None
        remaining_nodes = frozenset(ast.walk(remaining) if remaining is not None else ())
        for part in ast.walk(statement.node):
            if isinstance(part, _LASTING_PARTS) and part not in remaining_nodes:
                raise self._withholding(
                    f"an inner statement holds a {type(part).__name__}",
                    _first_node_of(self.match, statement),
                )

    @cached_property
    def superfluous(self) -> frozenset[Node]:
        """The matched nodes that nothing needs beside the kernel: without sizes of tensors whose
        statements stay, because they bind other names as well, or something that stays reads them.
        """
        nodes = self.matched
        while True:
            staying = {node.statement for node in nodes if self._stays(node.statement, nodes)}
            if not staying:
                return nodes
            nodes = frozenset(node for node in nodes if node.statement not in staying)

    def _stays(self, statement: Statement, superfluous: frozenset[Node]) -> bool:
        """Return whether a statement only reads sizes of tensors for the match, and has to stay."""
        nodes = [node for node in self.matched if node.statement is statement]
        if statement is self.root.statement or not all(map(is_size, nodes)):
            return False
        uses = [use for node in nodes for use in node.output.every_use()]
        return not self._is_inner(statement) or not superfluous.issuperset(uses)

    def _is_inner(self, statement: Statement) -> bool:
        """Return whether a statement assigns the expression of a matched node, and nothing else, to
        a name or to a tuple of names, or the expressions of matched nodes to a name each."""
        node = statement.node
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            return False
        if target_name(node) is None and not unpacks_into_names(node):
            return False
        values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        expressions = [matched_node.expr for matched_node in self.match.nodes]
        return all(any(value is expr for expr in expressions) for value in values)

    def _further_nodes(self, statement: Statement) -> list[Node]:
        """Return the nodes of a statement that the match does not make superfluous."""
        return [
            node
            for node in self.match.body.nodes
            if node.statement is statement
            and node not in self.superfluous
            and not self._only_feeds_match(node)
        ]

    def _reduced_value(self, statement: Statement) -> Value | None:
        """Return the value of the inner expression that remains of a statement which computes more
        than matched nodes: an input of the pattern that contains all of the rest. Return None where
        nothing has to remain, because only matched nodes use the rest, or the kernel call can
        repeat its text. Raise Withheld where no single input contains it."""
        unmatched_nodes = self._further_nodes(statement)
        if not unmatched_nodes:
            return None
        inputs = self._input_spans(unmatched_nodes)
        enclosing_inputs = [self._enclosing_nodes(node, inputs) for node in unmatched_nodes]
        repeatable = {
            node
            for node, span in inputs.items()
            if Renderer(self.match, self.imports, span, (), {}).repeatable_text(node.output)
        }
        if not any(repeatable.isdisjoint(enclosing) for enclosing in enclosing_inputs):
            return None
        for node in inputs:
            if all(node in enclosing for enclosing in enclosing_inputs):
                return node.output
        raise self._withholding(
            "an inner statement computes more than the rule covers", unmatched_nodes[-1]
        )

    def _input_spans(self, nodes: Collection[Node]) -> dict[Node, Span]:
        """Return those of the nodes that compute an input of the pattern, each with the span of its
        expression."""
        inputs = {value for value in self.match.bindings.values() if value.node in nodes}
        return {
            node: self.source.span(node.expr)
            for node in nodes
            if node.output in inputs and isinstance(node.expr, ast.expr)
        }

    def _enclosing_nodes(self, node: Node, spans: Mapping[Node, Span]) -> list[Node]:
        """Return those nodes, the keys of `spans`, whose span contains the expression of `node`."""
        return [
            outer for outer, span in spans.items() if is_inside(self.source.span(node.expr), span)
        ]

    def _only_feeds_match(self, node: Node) -> bool:
        """Return whether a node has no effect, is no input of the pattern, and is used by matched
        nodes only, directly or through other such nodes. Arguments that a matched node takes as a
        tuple count although they are an input: the kernel call is given them one by one."""
        if is_gathered(node):
            return self.superfluous.issuperset(node.output.every_use())
        is_pure = node.op in _PURE_OPS or number_of(node.output) is not None
        if node.effect or node.output in self.match.bindings.values():
            return False
        if not is_pure and not self._is_argument(node):
            return False
        return all(
            use in self.superfluous or self._only_feeds_match(use)
            for use in node.output.every_use()
        )

    def _is_argument(self, node: Node) -> bool:
        """Return whether a node computes nothing but a number for the arguments that a matched node
        takes as a tuple, and the kernel call can repeat its text."""
        uses = node.output.every_use()
        if not uses or not all(map(is_gathered, uses)) or not isinstance(node.expr, ast.expr):
            return False
        span = self.source.span(node.expr)
        renderer = Renderer(self.match, self.imports, span, (), {})
        return renderer.repeatable_text(node.output) is not None

    def _unneeded_statements(self, removed: Sequence[Statement]) -> list[Statement]:
        """Return further statements, like `dtype = x.dtype`, that only compute something for
        matched nodes, and are unused once the statements `removed` are gone."""
        supports: list[Statement] = []
        for node in self.match.nodes:
            for value in node.args.values():
                maker = value.node
                if maker is None or maker in self.matched:
                    continue
                if maker.statement in (*removed, *supports, self.root.statement):
                    continue
                if self._only_supports_match(maker.statement):
                    supports.append(maker.statement)
        return supports

    def _only_supports_match(self, statement: Statement) -> bool:
        """Return whether a statement is in the block of the root, only binds one name, has no
        effect, and is used by matched nodes only, directly or through others."""
        if target_name(statement.node) is None or statement.block != self.root.statement.block:
            return False
        return all(
            self._only_feeds_match(node)
            for node in self.match.body.nodes
            if node.statement is statement
        )

    def _statement_edits(self, plan: StatementPlan) -> list[Edit]:
        """Return the edits that delete the statements of the plan, and replace the values of those
        to reduce by the inner expressions; of names into which one is unpacked the first remains.
        Raises Withheld where a comment is in the way."""
        edits = [self._deletion_edit(statement) for statement in plan.deleted]
        for statement, value in plan.reduced.items():
            node = statement.node
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            assert node.value is not None and value.node is not None
            span = self.source.span(node.value)
            self._check_comments(span, value.node)
            edits.append(Edit(span, self._parenthesised_text(value.node)))
            if isinstance(node, ast.Assign) and unpacks_into_names(node):
                edits.append(Edit(self.source.span(node.targets[0]), first_name(node)))
        return edits

    def _parenthesised_text(self, node: Node) -> str:
        """Return the source text of a node's expression, in parentheses where it spans several
        lines and has none around its line endings."""
        text = self.source.segment(node.expr)
        try:
            ast.parse(text)
        except SyntaxError:
            return f"({text})"
        return text

    def _deletion_edit(self, statement: Statement) -> Edit:
        """Return the edit that deletes a statement with its lines; a comment behind it stays on a
        line of its own. Raise Withheld for a comment inside the statement, and where other code
        shares its lines."""
        span = self.source.span(statement.node)
        comments = self.source.comments_near(span)
        if any(span.start < comment.start < span.end for comment in comments):
            raise self._withholding(
                "a comment stands inside the code that would change",
                _first_node_of(self.match, statement),
            )
        lines = self._own_lines(statement, span)
        behind = [comment for comment in comments if span.end <= comment.start < lines.end]
        return Edit(Span(span.start, behind[0].start), "") if behind else Edit(lines, "")

    def _own_lines(self, statement: Statement, span: Span) -> Span:
        """Return the span of the whole lines of a statement, whose own span is `span`; raise
        Withheld where another statement shares them."""
        starts, text = self.source.line_starts, self.source.text
        start = starts[statement.node.lineno - 1]
        end = starts[statement.node.end_lineno or statement.node.lineno]
        text_behind = text[span.end : end].strip()
        if text[start : span.start].strip() or (text_behind and not text_behind.startswith(b"#")):
            raise self._withholding(
                "several statements share a line", _first_node_of(self.match, statement)
            )
        return Span(start, end)

    def _check_reduced(self, plan: StatementPlan) -> None:
        """Raise Withheld where the name of a reduced statement, which the kernel call reads, is
        assigned again before the call."""
        for statement in plan.reduced:
            name = first_name(statement.node)
            reaching = self.match.body.reaching(name, self.match.roots[0].time, plan.deleted)
            maker = reaching.node if reaching is not None else None
            if maker is None or maker.statement is not statement:
                raise self._withholding(
                    f"{name} is assigned again before the kernel is called", self.root
                )

    def _block_around(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return the block (list of statements) that contains `statement`."""
        return block_of(self.match.body.node, statement)


def is_inside(inner: Span, outer: Span) -> bool:
    """Return whether the span `inner` lies inside `outer`."""
    return outer.start <= inner.start and inner.end <= outer.end


def _first_node_of(match: Match, statement: Statement) -> Node:
    """Return the first matched node of a statement; the root where there is none."""
    return next((node for node in match.nodes if node.statement is statement), match.root)


def block_of(function: ast.AST, statement: ast.stmt) -> list[ast.stmt]:
    """Return the list of statements, at any depth, that contains `statement`; raise ValueError
    where the function does not."""
    for node in ast.walk(function):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and any(member is statement for member in block):
                return block
    raise ValueError("the statement is not in the function")
