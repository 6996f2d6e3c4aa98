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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from regraft.matching.result import Match, Test
from regraft.rewriting.render import Renderer, Withheld
from regraft.source.imports import Imports
from regraft.source.layout import Layout, indent_unit, indentation, without_parentheses
from regraft.source.text import Edit, Span
from regraft.structure.calls import writes
from regraft.structure.model import Node, Statement, Value

_HOOK_REGISTRATION = re.compile(
    rb"\.register_(?:module_)?(?:forward|full_backward|backward)\w*hook"
)

Mode = Literal["substitute", "sink", "version", "decorate"]
_VIEW_OPS = frozenset(
    [
        "view",
        "reshape",
        "transpose",
        "permute",
        "squeeze",
        "unsqueeze",
        "flatten",
        "expand",
        "detach",
        "py.item",
    ]
)
POSTPONED = "regraft.ops.postponed_"
_PURE_OPS = frozenset({"py.attr", "py.item", "py.slice", "py.tuple"})


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


@dataclass(frozen=True, slots=True)
class _Plan:
    """The statements to delete, and those to reduce to an inner expression; all others stay."""

    deleted: tuple[Statement, ...]
    # statement → the value of the inner expression that remains of it
    reduced: Mapping[Statement, Value]


class Rewriter:
    """A maker of the patch of one match with one output."""

    def __init__(self, match: Match, imports: Imports) -> None:
        self.match, self.imports, self.source = match, imports, imports.source
        self.root = match.root
        self.matched = frozenset(match.nodes)
        self.branching = self._find_branching()

    def patch(self) -> Patch:
        """Return the patch of the match; raise Withheld where the rewrite is not safe."""
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
        first = min(
            [
                span.start,
                *(
                    self.source.span(statement.node).start
                    for statement in (*plan.deleted, *plan.reduced)
                ),
            ]
        )
        last = self.source.span(self.root.statement.node).end
        if self.branching is not None:
            edits.append(self._sinking_edit(plan, self.branching))
            last = self.source.span(self.branching).end
        mode: Mode = "substitute" if self.branching is None else "sink"
        return Patch(self.match, mode, tuple(sorted(edits)), Span(first, last), frozenset(used))

    # checks

    def has_branches(self) -> bool:
        """Return whether a matched node stands in a branch of a statement that comes before the
        root's statement."""
        block = self.root.statement.block
        return self.branching is None and any(
            node.statement.block != block for node in self.match.nodes
        )

    def _check_places(self, root: ast.expr, node: Node) -> None:
        """Raise Withheld where the place of a node, its layers, a comment or the file's imports
        forbid the rewrite."""
        self._check_compound()
        for outer in ast.walk(node.statement.node):
            if isinstance(outer, ast.JoinedStr) and any(inner is root for inner in ast.walk(outer)):
                raise self._withholding("inside an f-string", node)
            if isinstance(outer, ast.NamedExpr | ast.Yield | ast.YieldFrom | ast.Await):
                raise self._withholding(f"the statement holds a {type(outer).__name__}", node)
        for elided in self._elided_layer_nodes():
            name = (
                elided.layer.name.split("[")[0].rpartition(".")[2]
                if elided.layer is not None
                else ""
            )
            if _HOOK_REGISTRATION.search(self.source.text):
                raise self._withholding(
                    f"the file registers hooks, which may be on {name}, which is no longer called",
                    elided,
                )
            if self._is_set_outside(name.encode()):
                raise self._withholding(
                    f"another object's {name} is set in this file: its type is not certain", elided
                )
        self._check_comments(self.source.span(root), node)
        self._check_writes(node)
        if self.match.body.compiled:
            raise self._withholding(
                "TorchScript compiles this function, and would have to compile the kernel",
                self.root,
            )
        if self.imports.obstacle:
            raise self._withholding(self.imports.obstacle, self.root)

    def _check_writes(self, root: Node) -> None:
        """Raise Withheld where the result, or a view of it, is written into.

        A kernel may keep its result for the backward pass. A postponed tensor is exempt, because it
        is computed before anything writes into it.
        """
        if self.match.pattern.kernel.startswith(POSTPONED):
            return
        visited, pending = {root.output}, [root.output]
        while pending and self.match.body.writers:
            value = pending.pop()
            for use in value.every_use():
                target = next(iter(use.args.values()), None)
                reached = target is not None and (
                    target is value or value in (option for _, option in target.options)
                )
                if writes(use) and reached:
                    raise self._withholding("the result is changed in place afterwards", use)
                if use.op in _VIEW_OPS and use.output not in visited:
                    visited.add(use.output)
                    pending.append(use.output)

    def _is_set_outside(self, name: bytes) -> bool:
        """Return whether the file sets an attribute of this name on an object other than `self`."""
        text = self.source.text
        for assignment in re.finditer(rb"\.%s\s*=(?!=)" % re.escape(name), text):
            if not re.search(
                rb"(?<![\w.])self$", text[max(assignment.start() - 5, 0) : assignment.start()]
            ):
                return True
        return (
            re.search(rb"setattr\((?!\s*self\b)[^,\n]*,\s*[\"']%s\b" % re.escape(name), text)
            is not None
        )

    def _check_compound(self) -> None:
        """Raise Withheld where a call that computes several nodes is matched in part only.

        Such a call, of a `Sequential` or an inlined function, is replaced as a whole or not at all.
        """
        body = self.match.body
        for expr, value in body.compound.items():
            matched_nodes = [node for node in self.match.nodes if node.expr is expr]
            name = body.inlined.get(expr)
            if not matched_nodes:
                self._check_passing_method(expr, name or "")
                continue
            if name is None:
                raise self._withholding(
                    "the layers are inside one nn.Sequential call", matched_nodes[0]
                )
            if name.startswith("self."):
                raise self._withholding(
                    f"{name}, which a subclass may override, would no longer be called",
                    matched_nodes[0],
                )
            unmatched_nodes = [
                node for node in body.nodes if node.expr is expr and node not in self.matched
            ]
            inner = self.root not in matched_nodes and value.node in self.matched
            is_whole = inner or self.root.output is value
            if not is_whole or any(map(self._has_work, unmatched_nodes)):
                raise self._withholding(
                    f"{name} computes more than the rule covers, or a part of it", matched_nodes[0]
                )

    def _check_passing_method(self, expr: ast.AST, name: str) -> None:
        """Raise Withheld where an inlined method that only passes on a matched value would no
        longer be called."""
        value = self.match.body.compound[expr]
        between = any(
            value is argument for node in self.match.nodes for argument in node.args.values()
        )
        if name.startswith("self.") and between and value.node in self.matched:
            raise self._withholding(
                f"{name}, which a subclass may override, would no longer be called", self.root
            )

    def _has_work(self, node: Node) -> bool:
        """Return whether an unmatched node of a call does more than pass values on."""
        return node.effect or not node.op.startswith("py.")

    def _elided_layer_nodes(self) -> list[Node]:
        """Return the nodes of layers that the kernel replaces without being given the module to
        look at."""
        passed_values = {value for value in self.match.bindings.values() if value.kind == "module"}
        return [
            node
            for node in self.match.nodes
            if node.layer is not None and node.layer not in passed_values
        ]

    def _check_comments(self, span: Span, node: Node) -> None:
        """Raise Withheld where a comment touches the span."""
        if any(span.touches(comment) for comment in self.source.comments_near(span)):
            raise self._withholding("a comment stands inside the code that would change", node)

    def _check_effects(self) -> None:
        """Raise Withheld where a node between the matched ones may have effects.

        Inner nodes move to the root's place: what stands in between must neither change nor show
        what they compute.
        """
        first = min(node.time for node in self.match.nodes)
        for node in self.match.between(first, self.root.time):
            if node.effect:
                line = getattr(node.expr, "lineno", node.statement.node.lineno)
                description = (
                    node.spelling or (node.layer.name if node.layer is not None else "") or "a call"
                )
                raise Withheld(
                    f"{description} at line {line} stands between the nodes and may have effects",
                    line,
                )

    # statements

    def _plan(self) -> _Plan:
        """Return the statements that are deleted and those that are reduced to an inner expression;
        raise Withheld."""
        deleted: list[Statement] = []
        reduced: dict[Statement, Value] = {}
        roots = {root.statement for root in self.match.roots}
        for statement in dict.fromkeys(node.statement for node in self.match.nodes):
            if statement in roots:
                continue
            if not self._is_inner(statement):
                raise self._withholding(
                    "an inner step is part of another statement",
                    _first_node_of(self.match, statement),
                )
            reduced_value = self._reduced_value(statement)
            if reduced_value is None:
                deleted.append(statement)
            else:
                reduced[statement] = reduced_value
        deleted += self._unneeded_statements([*deleted, *reduced])
        return _Plan(tuple(deleted), reduced)

    def _is_inner(self, statement: Statement) -> bool:
        """Return whether a statement is `name = <matched expression>`."""
        node = statement.node
        if target_name(node) is None or not isinstance(node, ast.Assign | ast.AnnAssign):
            return False
        return any(matched_node.expr is node.value for matched_node in self.match.nodes)

    def _reduced_value(self, statement: Statement) -> Value | None:
        """Return the one input of the pattern that a statement computes besides matched nodes.

        Return None where there is none, or where the kernel call can repeat its text; raise
        Withheld where the statement computes more.
        """
        unmatched_nodes = [
            node
            for node in self.match.body.nodes
            if node.statement is statement
            and node not in self.matched
            and not self._only_feeds_match(node)
        ]
        if not unmatched_nodes:
            return None
        bound_values = {
            value for value in self.match.bindings.values() if value.node in unmatched_nodes
        }
        tops = {
            node: self.source.span(node.expr)
            for node in unmatched_nodes
            if node.output in bound_values and isinstance(node.expr, ast.expr)
        }
        enclosing_tops = [
            [top for top in tops if _is_inside(self.source.span(node.expr), tops[top])]
            for node in unmatched_nodes
        ]
        repeatable_tops = [
            top
            for top in tops
            if Renderer(self.match, self.imports, tops[top], (), {}).recomputation(top.output)
        ]
        if all(any(top in repeatable_tops for top in enclosing) for enclosing in enclosing_tops):
            return None
        for top in tops:
            if all(top in enclosing for enclosing in enclosing_tops):
                return top.output
        raise self._withholding(
            "an inner statement computes more than the rule covers", unmatched_nodes[-1]
        )

    def _only_feeds_match(self, node: Node) -> bool:
        """Return whether a node is pure and only matched nodes use its value, directly or through
        such nodes."""
        if node.op not in _PURE_OPS or node.effect or node.output in self.match.bindings.values():
            return False
        return all(
            use in self.matched or self._only_feeds_match(use) for use in node.output.every_use()
        )

    def _unneeded_statements(self, removed: list[Statement]) -> list[Statement]:
        """Return statements like `dtype = x.dtype` whose value is unused once `removed` are
        gone."""
        supports: list[Statement] = []
        for node in self.match.nodes:
            for value in node.args.values():
                maker = value.node
                if (
                    maker is None
                    or maker in self.matched
                    or maker.statement in (*removed, *supports, self.root.statement)
                ):
                    continue
                statement = maker.statement
                statement_nodes = [
                    node for node in self.match.body.nodes if node.statement is statement
                ]
                simple = (
                    target_name(statement.node) is not None
                    and statement.block == self.root.statement.block
                )
                if simple and all(
                    self._only_feeds_match(statement_node) for statement_node in statement_nodes
                ):
                    supports.append(statement)
        return supports

    def _statement_edits(self, plan: _Plan) -> list[Edit]:
        """Return the edits that delete or reduce the statements of the plan."""
        edits = [self._deletion(statement) for statement in plan.deleted]
        for statement, value in plan.reduced.items():
            node = statement.node
            assert (
                isinstance(node, ast.Assign | ast.AnnAssign)
                and node.value is not None
                and value.node is not None
            )
            span = self.source.span(node.value)
            self._check_comments(span, value.node)
            edits.append(Edit(span, self._reduced_text(value.node)))
        return edits

    def _reduced_text(self, node: Node) -> str:
        """Return an inner expression as the value of a statement, in parentheses where it spans
        several lines."""
        text = self.source.segment(node.expr)
        return f"({text})" if "\n" in text else text

    def _deletion(self, statement: Statement) -> Edit:
        """Return the edit that deletes a statement with its lines; a comment behind it stays on a
        line of its own."""
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
        """Return the span of the lines of a statement; raise Withheld where more than a comment
        shares them."""
        starts, text = self.source.line_starts, self.source.text
        start = starts[statement.node.lineno - 1]
        end = starts[statement.node.end_lineno or statement.node.lineno]
        text_behind = text[span.end : end].strip()
        if text[start : span.start].strip() or (text_behind and not text_behind.startswith(b"#")):
            raise self._withholding(
                "several statements share a line", _first_node_of(self.match, statement)
            )
        return Span(start, end)

    # mode sink

    def _find_branching(self) -> ast.If | None:
        """Return the `if` with the root in a branch that directly follows all other matched
        statements, or None."""
        inner_statements = list(
            dict.fromkeys(node.statement for node in self.match.nodes if node is not self.root)
        )
        if (
            self.match.tests
            or not inner_statements
            or any(statement.block == self.root.statement.block for statement in inner_statements)
        ):
            return None
        block = _block_of(self.match.body.node, inner_statements[-1].node)
        position = block.index(inner_statements[0].node)
        following = (
            block[position + len(inner_statements)]
            if position + len(inner_statements) < len(block)
            else None
        )
        root = self.root.statement.node
        adjacent = all(
            statement.node is sibling
            for statement, sibling in zip(inner_statements, block[position:], strict=False)
        )
        if not (
            adjacent
            and isinstance(following, ast.If)
            and root in (*following.body, *following.orelse)
        ):
            return None
        # what the moved statements bind is unbound, or something else, after the branch with the
        # kernel
        same_name = isinstance(root, ast.Return) or all(
            target_name(statement.node) == target_name(root) for statement in inner_statements
        )
        quiet = not any(
            isinstance(ast_node, ast.NamedExpr | ast.Await) for ast_node in ast.walk(following.test)
        )
        pure = not any(node.effect for node in self.matched if node is not self.root)
        return following if same_name and quiet and pure else None

    def _sinking_edit(self, plan: _Plan, branching: ast.If) -> Edit:
        """Return the edit that inserts the deleted statements at the head of the branch without the
        kernel."""
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
        other_branch = (
            branching.orelse if self.root.statement.node in branching.body else branching.body
        )
        place = self.source.span((other_branch or branching.body)[0]).start
        if getattr((other_branch or branching.body)[0], "decorator_list", None):
            raise self._withholding("the other branch begins with a decorator", self.root)
        head, inner = (
            self.source.line_starts[self.source.position(place)[0] - 1],
            indentation(self.source, place),
        )
        if self.source.text[head:place].strip() or self.source.text[place:].startswith(b"elif"):
            raise self._withholding("the other branch has no lines of its own", self.root)
        texts = (
            self.source.segment(statement).replace("\n" + outer, "\n" + inner)
            for statement in statements
        )
        moved = "".join(f"{inner}{text}{newline}" for text in texts)
        if other_branch:
            return Edit(Span(head, head), moved)
        return Edit(Span(lines.end, lines.end), f"{outer}else:{newline}{moved}")

    # the kernel call

    def _kernel_call(self, plan: _Plan, span: Span, indent: str) -> tuple[str, set[str]]:
        """Return the text of the kernel call and the qualified names that it uses; raise
        Withheld."""
        reduced_names = {
            value: target_name(statement.node) or "" for statement, value in plan.reduced.items()
        }
        self._check_reduced(plan, reduced_names)
        renderer = Renderer(self.match, self.imports, span, plan.deleted, reduced_names)
        layout = Layout(self.source, span, indent)
        text = renderer.call(self.match.pattern.target, layout.call)
        if not renderer.is_in_order():
            raise self._withholding(
                "the kernel would evaluate its arguments in another order", self.root
            )
        self._check_lost_calls(renderer, span)
        return text, renderer.used

    def _check_reduced(self, plan: _Plan, reduced_names: Mapping[Value, str]) -> None:
        """Raise Withheld where the name of a reduced statement is bound anew before the kernel is
        called."""
        for statement, value in plan.reduced.items():
            name = reduced_names[value]
            reaching = self.match.body.reaching(name, self.match.roots[0].time, plan.deleted)
            if (
                reaching is None
                or reaching.node is None
                or reaching.node.statement is not statement
            ):
                raise self._withholding(
                    f"{name} is assigned again before the kernel is called", self.root
                )

    def _block_around(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return the list of statements that contains `statement`."""
        return _block_of(self.match.body.node, statement)

    def _check_lost_calls(self, renderer: Renderer, span: Span) -> None:
        """Raise Withheld where the replaced expression has an effect that is neither matched nor
        repeated."""
        repeated = [self.source.span(node.expr) for node in renderer.spliced]
        for node in self.match.body.nodes:
            if (
                node.statement is not self.root.statement
                or node in self.matched
                or not isinstance(node.expr, ast.expr)
            ):
                continue
            node_span = self.source.span(node.expr)
            if (
                _is_inside(node_span, span)
                and node.effect
                and not any(_is_inside(node_span, repeated_span) for repeated_span in repeated)
            ):
                raise self._withholding("a call inside the expression would be lost", node)

    # mode version

    def _version_patch(self, plan: _Plan, span: Span) -> Patch:
        """Return the patch that runs the kernel where the tests of the match hold."""
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
        fast = self._fast_branch(plan, statements, span, call, indent + unit)
        return self._branches(statements, condition, fast, subjects.used | call_names)

    def _branches(
        self, statements: list[ast.stmt], condition: str, fast: list[str], used: set[str]
    ) -> Patch:
        """Return the patch to `if <condition>:` with the lines of `fast`, and `statements` as the
        other branch."""
        first, last = self.source.span(statements[0]), self.source.span(statements[-1])
        lines = self._block_lines(statements)
        indent, unit, newline = (
            indentation(self.source, first.start),
            indent_unit(self.source),
            self.source.newline,
        )
        head = f"{indent}if {condition}:{newline}" + "".join(fast)
        original = self.source.text[lines.start : lines.end].decode()
        if isinstance(statements[-1], ast.Return):
            edits = (Edit(Span(lines.start, lines.start), head),)
        else:
            self._check_indentable(statements)
            block = "".join(
                unit + line if line.strip() else line for line in re.findall(r".*?\n|.+", original)
            )
            edits = (Edit(lines, f"{head}{indent}else:{newline}{block}"),)
        return Patch(self.match, "version", edits, Span(first.start, last.end), frozenset(used))

    def _statement_range(self, plan: _Plan) -> list[ast.stmt]:
        """Return the statements from the first matched one to the root's; raise Withheld where one
        is not matched."""
        root = self.root.statement.node
        if not isinstance(root, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr):
            raise self._withholding(
                f"the kernel would stand in the head of a {type(root).__name__.lower()}", self.root
            )
        body = _block_of(self.match.body.node, root)
        matched_statements = [
            statement.node for statement in (*plan.deleted, *plan.reduced, self.root.statement)
        ]
        positions = sorted(body.index(statement) for statement in matched_statements)
        if positions != list(range(positions[0], positions[-1] + 1)):
            raise self._withholding("other statements stand between the matched ones", self.root)
        return body[positions[0] : positions[-1] + 1]

    def _block_lines(self, statements: list[ast.stmt]) -> Span:
        """Return the span of the lines of statements; raise Withheld where other statements share
        them."""
        starts, text = self.source.line_starts, self.source.text
        first, last = self.source.span(statements[0]), self.source.span(statements[-1])
        start, end = starts[statements[0].lineno - 1], starts[statements[-1].end_lineno or 0]
        text_behind = text[last.end : end].strip()
        if text[start : first.start].strip() or (text_behind and not text_behind.startswith(b"#")):
            raise self._withholding("several statements share a line", self.root)
        if not text[:end].endswith((b"\n", b"\r")):
            raise self._withholding("the file does not end with a line ending", self.root)
        return Span(start, end)

    def _fast_branch(
        self, plan: _Plan, statements: list[ast.stmt], span: Span, call: str, indent: str
    ) -> list[str]:
        """Return the lines of the branch with the kernel: the statements less the deleted ones,
        with the call."""
        deleted = {statement.node for statement in plan.deleted}
        reduced = {statement.node: value for statement, value in plan.reduced.items()}
        lines = []
        for statement in statements:
            if statement in deleted:
                continue
            statement_span = self.source.span(statement)
            if statement in reduced:
                assert (
                    isinstance(statement, ast.Assign | ast.AnnAssign)
                    and statement.value is not None
                )
                node = reduced[statement].node
                assert node is not None
                inner, text = self.source.span(statement.value), self._reduced_text(node)
            else:
                inner, text = span, call
            lines.append(self._statement_line(statement_span, inner, text, indent))
        return lines

    def _kernel_statement(self, statement: ast.stmt, span: Span, call: str, indent: str) -> str:
        """Return the line of a statement with the kernel call in the place of `span`."""
        return self._statement_line(self.source.span(statement), span, call, indent)

    def _statement_line(self, statement_span: Span, inner: Span, text: str, indent: str) -> str:
        """Return the line of a statement in which `text` replaces `inner`; raise Withheld for
        several lines."""
        text_before = self.source.text[statement_span.start : inner.start].decode()
        text_after = self.source.text[inner.end : statement_span.end].decode()
        if "\n" in text_before + text_after:
            raise self._withholding(
                "the statement around the kernel call spans several lines", self.root
            )
        return f"{indent}{text_before}{text}{text_after}{self.source.newline}"

    def _check_indentable(self, statements: list[ast.stmt]) -> None:
        """Raise Withheld where a string of several lines would be changed by indenting the
        statements."""
        for statement in statements:
            for node in ast.walk(statement):
                is_text = isinstance(node, ast.JoinedStr) or (
                    isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
                )
                if is_text and node.lineno != node.end_lineno:  # type: ignore[attr-defined]
                    raise self._withholding(
                        "a string of several lines would have to be indented", self.root
                    )

    def _withholding(self, reason: str, node: Node) -> Withheld:
        """Return the Withheld for a reason at the line of a node."""
        return Withheld(reason, getattr(node.expr, "lineno", node.statement.node.lineno))


def target_name(node: ast.stmt) -> str | None:
    """Return the name that a plain assignment of one name binds; None for another statement."""
    if (
        isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0], ast.Name)
    ):
        return node.targets[0].id
    if (
        isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.value is not None
    ):
        return node.target.id
    return None


def _is_inside(inner: Span, outer: Span) -> bool:
    return outer.start <= inner.start and inner.end <= outer.end


def _first_node_of(match: Match, statement: Statement) -> Node:
    """Return the first matched node of a statement; the root where there is none."""
    return next((node for node in match.nodes if node.statement is statement), match.root)


def _block_of(function: ast.AST, statement: ast.stmt) -> list[ast.stmt]:
    """Return the list of statements that contains `statement`; raise ValueError where the function
    does not."""
    for node in ast.walk(function):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and any(member is statement for member in block):
                return block
    raise ValueError("the statement is not in the function")
