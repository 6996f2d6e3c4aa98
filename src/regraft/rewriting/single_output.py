"""The rewriting of a match with one output by edits of its statements.

There are three modes. *substitute*: the root expression becomes the kernel call, and statements
that only made inner values are deleted. *sink*: the same where the root is in one branch of an `if`
that follows these statements; they move into the other branch. *version*: the kernel runs under a
condition that is tested where the kernel stands, and the original block, unchanged, is the other
branch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from regraft.matching.result import Match, Test
from regraft.rewriting.assignments import target_name
from regraft.rewriting.kernel_call_source import Renderer
from regraft.rewriting.superfluous_statements import (
    StatementPlan,
    StatementRewriter,
    block_of,
    is_inside,
)
from regraft.source.imports import Imports
from regraft.source.layout import Layout, indent_unit, indentation, without_parentheses
from regraft.source.text import Edit, Span
from regraft.structure.values_and_nodes import Node, Statement

Mode = Literal["substitute", "sink", "version", "decorate", "hoist"]


@dataclass(frozen=True, slots=True, eq=False)
class Patch:
    """The edits of one match, disjoint and sorted.

    match   the match; None for that of a whole body
    extent  the span of the statements that the edits rewrite
    uses    qualified names that must be imported
    also    names of other definitions at the top level that the edits change
    """

    match: Match | None
    mode: Mode
    edits: tuple[Edit, ...]
    extent: Span
    uses: frozenset[str]
    also: tuple[str, ...] = ()


class Rewriter(StatementRewriter):
    """A maker of the patch of one match with one output, in mode substitute, sink or version.

    branching: the `if` with the root in a branch, for mode sink; None for another mode. The root is
    the node that computes the output.
    """

    def __init__(self, match: Match, imports: Imports) -> None:
        super().__init__(match, imports)
        self.branching = self._find_branching()

    def patch(self) -> Patch:
        """Return the patch that puts the kernel call in the place of the root's expression and
        deletes inner statements: under an `if` where the match has tests (version), and with these
        statements moved into the other branch in mode sink. The file is not changed; raises
        Withheld where that is not safe."""
        root = self.root.expr
        if not isinstance(root, ast.expr):
            raise self._withholding("the last step is an in-place statement", self.root)
        self._check_places(root, self.root)
        plan = self._plan()
        self._check_effects()
        span = without_parentheses(self.source, self.source.span(root))
        if self.match.tests:
            return self._version_patch(plan, span)
        call, used = self._kernel_call(plan, span, indentation(self.source, span.start))
        edits = [Edit(span, call), *self._statement_edits(plan)]
        starts = [
            self.source.span(statement.node).start for statement in (*plan.deleted, *plan.reduced)
        ]
        first = min([span.start, *starts])
        last = self.source.span(self.root.statement.node).end
        if self.branching is not None:
            edits.append(self._sinking_edit(plan, self.branching))
            last = self.source.span(self.branching).end
        mode: Mode = "substitute" if self.branching is None else "sink"
        return Patch(self.match, mode, tuple(sorted(edits)), Span(first, last), frozenset(used))

    def has_branches(self) -> bool:
        """Return whether a matched node stands in another block than the root, so that
        `GuardedRewriter` is needed; False in mode sink."""
        block = self.root.statement.block
        return self.branching is None and any(
            node.statement.block != block for node in self.match.nodes
        )

    # mode sink

    def _find_branching(self) -> ast.If | None:
        """Return the `if` for mode sink: it contains the root in a branch and directly follows all
        other matched statements, which may move into its other branch. None where there is no such
        `if`."""
        statements = list(
            dict.fromkeys(node.statement for node in self.match.nodes if node is not self.root)
        )
        block = self.root.statement.block
        if self.match.tests or not statements:
            return None
        if any(statement.block == block for statement in statements):
            return None
        branching = self._if_after(statements)
        if branching is None or not self._can_sink(statements, branching):
            return None
        return branching

    def _if_after(self, statements: Sequence[Statement]) -> ast.If | None:
        """Return the `if` that directly follows the statements; None where another statement does,
        or they do not stand one after the other."""
        block = block_of(self.match.body.node, statements[-1].node)
        if statements[0].node not in block:
            return None
        position = block.index(statements[0].node)
        siblings = block[position:]
        are_adjacent = all(
            statement.node is sibling
            for statement, sibling in zip(statements, siblings, strict=False)
        )
        behind = siblings[len(statements) :]
        if are_adjacent and behind and isinstance(behind[0], ast.If):
            return behind[0]
        return None

    def _can_sink(self, statements: Sequence[Statement], branching: ast.If) -> bool:
        """Return whether the statements before `branching` may move into its branch without the
        root: they have no effects, its test binds nothing, and the branch with the root binds the
        same name or returns."""
        root = self.root.statement.node
        if root not in (*branching.body, *branching.orelse):
            return False
        is_name_rebound = isinstance(root, ast.Return) or all(
            target_name(statement.node) == target_name(root) for statement in statements
        )
        is_test_quiet = not any(
            isinstance(ast_node, ast.NamedExpr | ast.Await) for ast_node in ast.walk(branching.test)
        )
        is_pure = not any(node.effect for node in self.matched if node is not self.root)
        return is_name_rebound and is_test_quiet and is_pure

    def _sinking_edit(self, plan: StatementPlan, branching: ast.If) -> Edit:
        """Return the edit that copies the statements that the plan deletes to the head of the
        branch without the kernel, or adds an `else` with them. Raises Withheld where a statement is
        reduced or cannot be moved."""
        statements = sorted(
            (statement.node for statement in plan.deleted), key=lambda statement: statement.lineno
        )
        if plan.reduced:
            raise self._withholding(
                "an inner statement computes more than the rule covers", self.root
            )
        self._check_indentable(list(statements))
        lines, newline = self._block_lines([branching]), self.source.newline
        outer = indentation(self.source, lines.start)
        is_root_in_body = self.root.statement.node in branching.body
        kernel_free_branch = branching.orelse if is_root_in_body else branching.body
        first = (kernel_free_branch or branching.body)[0]
        head = self._branch_head(first)
        inner = indentation(self.source, self.source.span(first).start)
        texts = (
            self.source.segment(statement).replace("\n" + outer, "\n" + inner)
            for statement in statements
        )
        moved = "".join(f"{inner}{text}{newline}" for text in texts)
        if kernel_free_branch:
            return Edit(Span(head, head), moved)
        return Edit(Span(lines.end, lines.end), f"{outer}else:{newline}{moved}")

    def _branch_head(self, first: ast.stmt) -> int:
        """Return the offset of the line of a branch's first statement, before which lines can be
        inserted; raise Withheld where they cannot: for a decorator, `elif`, or a branch on the line
        of its `if`."""
        place = self.source.span(first).start
        if getattr(first, "decorator_list", None):
            raise self._withholding("the other branch begins with a decorator", self.root)
        head = self.source.line_starts[self.source.position(place)[0] - 1]
        if self.source.text[head:place].strip() or self.source.text[place:].startswith(b"elif"):
            raise self._withholding("the other branch has no lines of its own", self.root)
        return head

    # the kernel call

    def _kernel_call(self, plan: StatementPlan, span: Span, indent: str) -> tuple[str, set[str]]:
        """Return the text of the kernel call that replaces `span`, and the qualified names to
        import; raise Withheld where it would evaluate in another order or lose a call.

        plan: the statements that will be gone or reduced when it runs. indent: the indentation of
        its line.
        """
        self._check_reduced(plan)
        renderer = Renderer(self.match, self.imports, span, plan.deleted, plan.reduced_names())
        layout = Layout(self.source, span, indent)
        text = renderer.call(self.match.pattern.target, layout.call)
        if not renderer.is_in_order():
            raise self._withholding(
                "the kernel would evaluate its arguments in another order", self.root
            )
        self._check_lost_calls(renderer, span)
        return text, renderer.used

    def _check_lost_calls(self, renderer: Renderer, span: Span) -> None:
        """Raise Withheld where the text in `span`, which the kernel call replaces, contains an
        unmatched node with an effect that the call does not repeat."""
        repeated = [self.source.span(node.expr) for node in renderer.spliced]
        for node in self.match.body.nodes:
            if node.statement is self.root.statement and self._is_lost(node, span, repeated):
                raise self._withholding("a call inside the expression would be lost", node)

    def _is_lost(self, node: Node, span: Span, repeated: Sequence[Span]) -> bool:
        """Return whether an unmatched node with an effect stands in `span`, but in none of the
        `repeated` spans."""
        if node in self.matched or not isinstance(node.expr, ast.expr):
            return False
        node_span = self.source.span(node.expr)
        if not is_inside(node_span, span) or not node.effect:
            return False
        return not any(is_inside(node_span, repeated_span) for repeated_span in repeated)

    # mode version

    def _version_patch(self, plan: StatementPlan, span: Span) -> Patch:
        """Return the patch with `if <tests of the match>:`, the kernel in its branch and the
        original statements as the other branch; raise Withheld where the statements cannot be moved
        or indented.

        plan: what the kernel makes superfluous in its branch. span: the root's expression.
        """
        statements = self._statement_range(plan)
        indent, unit = (
            indentation(self.source, self.source.span(statements[0]).start),
            indent_unit(self.source),
        )
        subjects = Renderer(self.match, self.imports, span, plan.deleted, {})
        tests = (test for test in self.match.tests if isinstance(test, Test))
        condition = " and ".join(
            f"{subjects.spell(test.predicate)}({subjects.value(test.subject)})" for test in tests
        )
        call, call_names = self._kernel_call(plan, span, indent + unit)
        fast = self._kernel_branch_lines(plan, statements, span, call, indent + unit)
        return self._branching_patch(statements, condition, fast, subjects.used | call_names)

    def _branching_patch(
        self, statements: list[ast.stmt], condition: str, fast: list[str], used: set[str]
    ) -> Patch:
        """Return the patch that writes `if <condition>:` with the lines `fast`, which import the
        names `used`, before the statements, which become the other branch: unchanged where they end
        in a return, else indented below `else:`."""
        first, last = self.source.span(statements[0]), self.source.span(statements[-1])
        lines = self._block_lines(statements)
        indent, newline = indentation(self.source, first.start), self.source.newline
        unit = indent_unit(self.source)
        head = f"{indent}if {condition}:{newline}" + "".join(fast)
        original = self.source.text[lines.start : lines.end].decode()
        if isinstance(statements[-1], ast.Return):
            edits = (Edit(Span(lines.start, lines.start), head),)
        else:
            self._check_indentable(statements)
            rows = re.findall(r".*?\n|.+", original)
            block = "".join(unit + row if row.strip() else row for row in rows)
            edits = (Edit(lines, f"{head}{indent}else:{newline}{block}"),)
        return Patch(self.match, "version", edits, Span(first.start, last.end), frozenset(used))

    def _statement_range(self, plan: StatementPlan) -> list[ast.stmt]:
        """Return the statements of one block from the first matched one to the root's; raise
        Withheld where one in between is not matched, or the root is in the head of a compound
        statement."""
        root = self.root.statement.node
        if not isinstance(root, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr):
            raise self._withholding(
                f"the kernel would stand in the head of a {type(root).__name__.lower()}", self.root
            )
        body = block_of(self.match.body.node, root)
        matched_statements = [
            statement.node for statement in (*plan.deleted, *plan.reduced, self.root.statement)
        ]
        positions = sorted(body.index(statement) for statement in matched_statements)
        if positions != list(range(positions[0], positions[-1] + 1)):
            raise self._withholding("other statements stand between the matched ones", self.root)
        return body[positions[0] : positions[-1] + 1]

    def _block_lines(self, statements: list[ast.stmt]) -> Span:
        """Return the span of the whole lines of adjacent statements; raise Withheld where other
        statements share them, or the last line has no line ending."""
        starts, text = self.source.line_starts, self.source.text
        first, last = self.source.span(statements[0]), self.source.span(statements[-1])
        start, end = starts[statements[0].lineno - 1], starts[statements[-1].end_lineno or 0]
        text_behind = text[last.end : end].strip()
        if text[start : first.start].strip() or (text_behind and not text_behind.startswith(b"#")):
            raise self._withholding("several statements share a line", self.root)
        if not text[:end].endswith((b"\n", b"\r")):
            raise self._withholding("the file does not end with a line ending", self.root)
        return Span(start, end)

    def _kernel_branch_lines(
        self, plan: StatementPlan, statements: list[ast.stmt], span: Span, call: str, indent: str
    ) -> list[str]:
        """Return the lines of the branch with the kernel: the statements without those the plan
        deletes, with what remains of the reduced ones, and with `call` in the place of `span`."""
        deleted = {statement.node for statement in plan.deleted}
        reduced = {statement.node: value for statement, value in plan.reduced.items()}
        lines = []
        for statement in statements:
            if statement in deleted:
                continue
            statement_span = self.source.span(statement)
            if statement in reduced:
                assert isinstance(statement, ast.Assign | ast.AnnAssign)
                node, value = reduced[statement].node, statement.value
                assert node is not None and value is not None
                if target_name(statement) is None:
                    raise self._withholding("an inner step is unpacked", self.root)
                inner, text = self.source.span(value), self._parenthesised_text(node)
            else:
                inner, text = span, call
            lines.append(self._statement_line(statement_span, inner, text, indent))
        return lines

    def _kernel_statement(self, statement: ast.stmt, span: Span, call: str, indent: str) -> str:
        """Return the line of a statement in which `call` takes the place of the text of `span`,
        with the indentation `indent`; raise Withheld where the rest of the statement spans several
        lines."""
        return self._statement_line(self.source.span(statement), span, call, indent)

    def _statement_line(self, statement_span: Span, inner: Span, text: str, indent: str) -> str:
        """Return the line of a statement in which `text` replaces the span `inner`, with the
        indentation `indent`; raise Withheld where the rest of the statement spans several lines."""
        text_before = self.source.text[statement_span.start : inner.start].decode()
        text_after = self.source.text[inner.end : statement_span.end].decode()
        if "\n" in text_before + text_after:
            raise self._withholding(
                "the statement around the kernel call spans several lines", self.root
            )
        return f"{indent}{text_before}{text}{text_after}{self.source.newline}"

    def _check_indentable(self, statements: list[ast.stmt]) -> None:
        """Raise Withheld where the statements contain a string over several lines, which indenting
        would change."""
        for statement in statements:
            for node in ast.walk(statement):
                is_text = isinstance(node, ast.JoinedStr) or (
                    isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
                )
                if is_text and node.lineno != node.end_lineno:  # type: ignore[attr-defined]
                    raise self._withholding(
                        "a string of several lines would have to be indented", self.root
                    )
