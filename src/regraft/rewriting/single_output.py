"""Rewriting a match with one output: edits of its statements.

Three modes. *substitute*: the root expression becomes the kernel call and statements that only made inner values go
away. *sink*: the same where the root is in one branch of an `if` that follows these statements; the other branch gets
them. *version*: the kernel runs under a condition that is tested where it stands, and the original block, unchanged,
is the other branch.
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

_HOOKS = re.compile(rb"\.register_(?:module_)?(?:forward|full_backward|backward)\w*hook")

Mode = Literal["substitute", "sink", "version", "decorate"]
_VIEWS = frozenset(
    ["view", "reshape", "transpose", "permute", "squeeze", "unsqueeze", "flatten", "expand", "detach", "py.item"]
)
POSTPONED = "regraft.ops.postponed_"
_PURE = frozenset({"py.attr", "py.item", "py.slice", "py.tuple"})


@dataclass(frozen=True, slots=True, eq=False)
class Patch:
    """Edits of one match: disjoint, sorted; `extent` is the statements they rewrite; `uses` what must be imported.

    match is None where it is that of a whole body; `also` names other definitions at the top level that it changes.
    """

    match: Match | None
    mode: Mode
    edits: tuple[Edit, ...]
    extent: Span
    uses: frozenset[str]
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Plan:
    """What happens to the statements around the root."""

    deleted: tuple[Statement, ...]
    kept: Mapping[Statement, Value]  # statement → the inner expression that it keeps


class Rewriter:
    """The patch of one match with one output; raises Withheld."""

    def __init__(self, match: Match, imports: Imports) -> None:
        self.match, self.imports, self.source = match, imports, imports.source
        self.root = match.root
        self.matched = frozenset(match.nodes)
        self.branching = self._branching()

    def patch(self) -> Patch:
        root = self.root.expr
        if not isinstance(root, ast.expr):
            raise self._withheld("the last step is an in-place statement", self.root)
        self._check_places(root, self.root)
        plan = self._plan()
        self._check_effects()
        span = without_parentheses(self.source, self.source.span(root))
        if self.match.tests:
            return self._version(plan, span)
        call, used = self._call(plan, span, indentation(self.source, span.start))
        edits = [Edit(span, call), *self._statement_edits(plan)]
        first = min([span.start, *(self.source.span(one.node).start for one in (*plan.deleted, *plan.kept))])
        last = self.source.span(self.root.statement.node).end
        if self.branching is not None:
            edits.append(self._sunk(plan, self.branching))
            last = self.source.span(self.branching).end
        mode: Mode = "substitute" if self.branching is None else "sink"
        return Patch(self.match, mode, tuple(sorted(edits)), Span(first, last), frozenset(used))

    # checks

    def has_branches(self) -> bool:
        """Whether a node is inside a statement that comes before the root's, in a branch of it."""
        block = self.root.statement.block
        return self.branching is None and any(node.statement.block != block for node in self.match.nodes)

    def _check_places(self, root: ast.expr, node: Node) -> None:
        self._check_compound()
        for outer in ast.walk(node.statement.node):
            if isinstance(outer, ast.JoinedStr) and any(inner is root for inner in ast.walk(outer)):
                raise self._withheld("inside an f-string", node)
            if isinstance(outer, ast.NamedExpr | ast.Yield | ast.YieldFrom | ast.Await):
                raise self._withheld(f"the statement holds a {type(outer).__name__}", node)
        for elided in self._elided_layers():
            name = elided.layer.name.split("[")[0].rpartition(".")[2] if elided.layer is not None else ""
            if _HOOKS.search(self.source.text):
                raise self._withheld(
                    f"the file registers hooks, which may be on {name}, which is no longer called", elided
                )
            if self._set_outside(name.encode()):
                raise self._withheld(f"another object's {name} is set in this file: its type is not certain", elided)
        self._check_comments(self.source.span(root), node)
        self._check_written(node)
        if self.match.body.compiled:
            raise self._withheld("TorchScript compiles this function, and would have to compile the kernel", self.root)
        if self.imports.obstacle:
            raise self._withheld(self.imports.obstacle, self.root)

    def _check_written(self, root: Node) -> None:
        """A kernel may keep its result for the backward pass: nothing writes into it, or a view of it, afterwards.

        A postponed tensor is computed before anything writes into it.
        """
        if self.match.pattern.kernel.startswith(POSTPONED):
            return
        seen, pending = {root.output}, [root.output]
        while pending and self.match.body.writers:
            value = pending.pop()
            for use in value.every_use():
                target = next(iter(use.args.values()), None)
                reached = target is not None and (target is value or value in (one for _, one in target.options))
                if writes(use) and reached:
                    raise self._withheld("the result is changed in place afterwards", use)
                if use.op in _VIEWS and use.output not in seen:
                    seen.add(use.output)
                    pending.append(use.output)

    def _set_outside(self, name: bytes) -> bool:
        """Whether the file sets an attribute of this name on something else than `self`."""
        text = self.source.text
        for found in re.finditer(rb"\.%s\s*=(?!=)" % re.escape(name), text):
            if not re.search(rb"(?<![\w.])self$", text[max(found.start() - 5, 0) : found.start()]):
                return True
        return re.search(rb"setattr\((?!\s*self\b)[^,\n]*,\s*[\"']%s\b" % re.escape(name), text) is not None

    def _check_compound(self) -> None:
        """A call that computes several nodes (a `Sequential`, an inlined function) goes as a whole or not at all."""
        body = self.match.body
        for expr, value in body.compound.items():
            mine = [node for node in self.match.nodes if node.expr is expr]
            name = body.inlined.get(expr)
            if not mine:
                self._check_passed(expr, name or "")
                continue
            if name is None:
                raise self._withheld("the layers are inside one nn.Sequential call", mine[0])
            if name.startswith("self."):
                raise self._withheld(f"{name}, which a subclass may override, would no longer be called", mine[0])
            others = [one for one in body.nodes if one.expr is expr and one not in self.matched]
            inner = self.root not in mine and value.node in self.matched
            whole = inner or self.root.output is value
            if not whole or any(map(self._matters, others)):
                raise self._withheld(f"{name} computes more than the rule covers, or a part of it", mine[0])

    def _check_passed(self, expr: ast.AST, name: str) -> None:
        """An inlined method between two matched nodes, which only passes a value on, would no longer be called."""
        value = self.match.body.compound[expr]
        between = any(value is one for node in self.match.nodes for one in node.args.values())
        if name.startswith("self.") and between and value.node in self.matched:
            raise self._withheld(f"{name}, which a subclass may override, would no longer be called", self.root)

    def _matters(self, node: Node) -> bool:
        """Whether a node beside the matched ones of a call does more than pass values on."""
        return node.effect or not node.op.startswith("py.")

    def _elided_layers(self) -> list[Node]:
        """Layers' nodes that the kernel computes without being given the module, so that it cannot look at it."""
        given = {value for value in self.match.bindings.values() if value.kind == "module"}
        return [node for node in self.match.nodes if node.layer is not None and node.layer not in given]

    def _check_comments(self, span: Span, node: Node) -> None:
        if any(span.touches(comment) for comment in self.source.comments_near(span)):
            raise self._withheld("a comment stands inside the code that would change", node)

    def _check_effects(self) -> None:
        """Inner nodes move to the root's place: nothing in between may change what they see or be seen to change."""
        first = min(node.time for node in self.match.nodes)
        for node in self.match.between(first, self.root.time):
            if node.effect:
                line = getattr(node.expr, "lineno", node.statement.node.lineno)
                what = node.spelling or (node.layer.name if node.layer is not None else "") or "a call"
                raise Withheld(f"{what} at line {line} stands between the nodes and may have effects", line)

    # statements

    def _plan(self) -> _Plan:
        """Which statements go and which keep an inner expression."""
        deleted: list[Statement] = []
        kept: dict[Statement, Value] = {}
        roots = {root.statement for root in self.match.roots}
        for statement in dict.fromkeys(node.statement for node in self.match.nodes):
            if statement in roots:
                continue
            if not self._is_inner(statement):
                raise self._withheld("an inner step is part of another statement", _first(self.match, statement))
            left = self._kept_expression(statement)
            if left is None:
                deleted.append(statement)
            else:
                kept[statement] = left
        deleted += self._supports([*deleted, *kept])
        return _Plan(tuple(deleted), kept)

    def _is_inner(self, statement: Statement) -> bool:
        """`name = <matched expression>`."""
        node = statement.node
        if target_name(node) is None or not isinstance(node, ast.Assign | ast.AnnAssign):
            return False
        return any(one.expr is node.value for one in self.match.nodes)

    def _kept_expression(self, statement: Statement) -> Value | None:
        """The one input of the pattern that the statement computes besides matched nodes; None when it has none."""
        others = [
            node
            for node in self.match.body.nodes
            if node.statement is statement and node not in self.matched and not self._only_feeds_match(node)
        ]
        if not others:
            return None
        wanted = {value for value in self.match.bindings.values() if value.node in others}
        tops = {
            node: self.source.span(node.expr)
            for node in others
            if node.output in wanted and isinstance(node.expr, ast.expr)
        }
        inside = [[top for top in tops if _inside(self.source.span(node.expr), tops[top])] for node in others]
        again = [top for top in tops if Renderer(self.match, self.imports, tops[top], (), {}).again(top.output)]
        if all(any(top in again for top in around) for around in inside):
            return None
        for top in tops:
            if all(top in around for around in inside):
                return top.output
        raise self._withheld("an inner statement computes more than the rule covers", others[-1])

    def _only_feeds_match(self, node: Node) -> bool:
        if node.op not in _PURE or node.effect or node.output in self.match.bindings.values():
            return False
        return all(use in self.matched or self._only_feeds_match(use) for use in node.output.every_use())

    def _supports(self, gone: list[Statement]) -> list[Statement]:
        """Statements like `dtype = x.dtype` whose value nobody needs any more."""
        found: list[Statement] = []
        for node in self.match.nodes:
            for value in node.args.values():
                maker = value.node
                if maker is None or maker in self.matched or maker.statement in (*gone, *found, self.root.statement):
                    continue
                statement = maker.statement
                makers = [one for one in self.match.body.nodes if one.statement is statement]
                simple = target_name(statement.node) is not None and statement.block == self.root.statement.block
                if simple and all(self._only_feeds_match(one) for one in makers):
                    found.append(statement)
        return found

    def _statement_edits(self, plan: _Plan) -> list[Edit]:
        edits = [self._deletion(statement) for statement in plan.deleted]
        for statement, value in plan.kept.items():
            node = statement.node
            assert isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and value.node is not None
            span = self.source.span(node.value)
            self._check_comments(span, value.node)
            edits.append(Edit(span, self._kept_text(value.node)))
        return edits

    def _kept_text(self, node: Node) -> str:
        """An inner expression as a statement of its own; one of several lines needs parentheses there."""
        text = self.source.segment(node.expr)
        return f"({text})" if "\n" in text else text

    def _deletion(self, statement: Statement) -> Edit:
        """Take a statement out with its lines; a comment behind it stays, on a line of its own."""
        span = self.source.span(statement.node)
        comments = self.source.comments_near(span)
        if any(span.start < comment.start < span.end for comment in comments):
            raise self._withheld("a comment stands inside the code that would change", _first(self.match, statement))
        lines = self._own_lines(statement, span)
        behind = [comment for comment in comments if span.end <= comment.start < lines.end]
        return Edit(Span(span.start, behind[0].start), "") if behind else Edit(lines, "")

    def _own_lines(self, statement: Statement, span: Span) -> Span:
        """Whole lines of a statement that shares them with nothing but a comment."""
        starts, text = self.source.line_starts, self.source.text
        start = starts[statement.node.lineno - 1]
        end = starts[statement.node.end_lineno or statement.node.lineno]
        rest = text[span.end : end].strip()
        if text[start : span.start].strip() or (rest and not rest.startswith(b"#")):
            raise self._withheld("several statements share a line", _first(self.match, statement))
        return Span(start, end)

    # mode sink

    def _branching(self) -> ast.If | None:
        """The `if` that holds the root in a branch, when all other matched statements stand directly before it."""
        others = list(dict.fromkeys(node.statement for node in self.match.nodes if node is not self.root))
        if self.match.tests or not others or any(one.block == self.root.statement.block for one in others):
            return None
        around = _siblings(self.match.body.node, others[-1].node)
        position = around.index(others[0].node)
        following = around[position + len(others)] if position + len(others) < len(around) else None
        root = self.root.statement.node
        adjacent = all(one.node is here for one, here in zip(others, around[position:], strict=False))
        if not (adjacent and isinstance(following, ast.If) and root in (*following.body, *following.orelse)):
            return None
        # what the moved statements bind is unbound, or something else, after the branch with the kernel
        left = isinstance(root, ast.Return) or all(target_name(one.node) == target_name(root) for one in others)
        quiet = not any(isinstance(one, ast.NamedExpr | ast.Await) for one in ast.walk(following.test))
        pure = not any(node.effect for node in self.matched if node is not self.root)
        return following if left and quiet and pure else None

    def _sunk(self, plan: _Plan, branching: ast.If) -> Edit:
        """The deleted statements again, at the head of the branch without the kernel."""
        statements = sorted((one.node for one in plan.deleted), key=lambda one: one.lineno)
        if plan.kept:
            raise self._withheld("an inner statement computes more than the rule covers", self.root)
        self._check_indentable(list(statements))
        lines, newline = self._block_lines([branching]), self.source.newline
        outer = indentation(self.source, lines.start)
        other = branching.orelse if self.root.statement.node in branching.body else branching.body
        place = self.source.span((other or branching.body)[0]).start
        if getattr((other or branching.body)[0], "decorator_list", None):
            raise self._withheld("the other branch begins with a decorator", self.root)
        head, inner = self.source.line_starts[self.source.position(place)[0] - 1], indentation(self.source, place)
        if self.source.text[head:place].strip() or self.source.text[place:].startswith(b"elif"):
            raise self._withheld("the other branch has no lines of its own", self.root)
        texts = (self.source.segment(one).replace("\n" + outer, "\n" + inner) for one in statements)
        moved = "".join(f"{inner}{text}{newline}" for text in texts)
        if other:
            return Edit(Span(head, head), moved)
        return Edit(Span(lines.end, lines.end), f"{outer}else:{newline}{moved}")

    # the kernel call

    def _call(self, plan: _Plan, span: Span, indent: str) -> tuple[str, set[str]]:
        kept = {value: target_name(statement.node) or "" for statement, value in plan.kept.items()}
        self._check_kept(plan, kept)
        renderer = Renderer(self.match, self.imports, span, plan.deleted, kept)
        layout = Layout(self.source, span, indent)
        text = renderer.call(self.match.pattern.target, layout.call)
        if not renderer.in_order():
            raise self._withheld("the kernel would evaluate its arguments in another order", self.root)
        self._check_lost(renderer, span)
        return text, renderer.used

    def _check_kept(self, plan: _Plan, kept: Mapping[Value, str]) -> None:
        for statement, value in plan.kept.items():
            name = kept[value]
            reaching = self.match.body.reaching(name, self.match.roots[0].time, plan.deleted)
            if reaching is None or reaching.node is None or reaching.node.statement is not statement:
                raise self._withheld(f"{name} is assigned again before the kernel is called", self.root)

    def _statements_around(self, statement: ast.stmt) -> list[ast.stmt]:
        return _siblings(self.match.body.node, statement)

    def _check_lost(self, renderer: Renderer, span: Span) -> None:
        """Nothing inside the replaced expression may vanish unless it is matched, repeated, or without effect."""
        repeated = [self.source.span(node.expr) for node in renderer.spliced]
        for node in self.match.body.nodes:
            if (
                node.statement is not self.root.statement
                or node in self.matched
                or not isinstance(node.expr, ast.expr)
            ):
                continue
            place = self.source.span(node.expr)
            if _inside(place, span) and node.effect and not any(_inside(place, one) for one in repeated):
                raise self._withheld("a call inside the expression would be lost", node)

    # mode version

    def _version(self, plan: _Plan, span: Span) -> Patch:
        statements = self._range(plan)
        indent, unit = indentation(self.source, self.source.span(statements[0]).start), indent_unit(self.source)
        subjects = Renderer(self.match, self.imports, span, plan.deleted, {})
        tests = (one for one in self.match.tests if isinstance(one, Test))
        condition = " and ".join(f"{subjects.spell(one.predicate)}({subjects.value(one.subject)})" for one in tests)
        call, more = self._call(plan, span, indent + unit)
        fast = self._fast_branch(plan, statements, span, call, indent + unit)
        return self._branches(statements, condition, fast, subjects.used | more)

    def _branches(self, statements: list[ast.stmt], condition: str, fast: list[str], used: set[str]) -> Patch:
        """`if <condition>:` with the lines of the fast branch, and the statements as they are otherwise."""
        first, last = self.source.span(statements[0]), self.source.span(statements[-1])
        lines = self._block_lines(statements)
        indent, unit, newline = indentation(self.source, first.start), indent_unit(self.source), self.source.newline
        head = f"{indent}if {condition}:{newline}" + "".join(fast)
        original = self.source.text[lines.start : lines.end].decode()
        if isinstance(statements[-1], ast.Return):
            edits = (Edit(Span(lines.start, lines.start), head),)
        else:
            self._check_indentable(statements)
            block = "".join(unit + line if line.strip() else line for line in re.findall(r".*?\n|.+", original))
            edits = (Edit(lines, f"{head}{indent}else:{newline}{block}"),)
        return Patch(self.match, "version", edits, Span(first.start, last.end), frozenset(used))

    def _range(self, plan: _Plan) -> list[ast.stmt]:
        """The consecutive statements from the first matched one to the root's."""
        root = self.root.statement.node
        if not isinstance(root, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr):
            raise self._withheld(f"the kernel would stand in the head of a {type(root).__name__.lower()}", self.root)
        body = _siblings(self.match.body.node, root)
        mine = [one.node for one in (*plan.deleted, *plan.kept, self.root.statement)]
        positions = sorted(body.index(one) for one in mine)
        if positions != list(range(positions[0], positions[-1] + 1)):
            raise self._withheld("other statements stand between the matched ones", self.root)
        return body[positions[0] : positions[-1] + 1]

    def _block_lines(self, statements: list[ast.stmt]) -> Span:
        starts, text = self.source.line_starts, self.source.text
        first, last = self.source.span(statements[0]), self.source.span(statements[-1])
        start, end = starts[statements[0].lineno - 1], starts[statements[-1].end_lineno or 0]
        rest = text[last.end : end].strip()
        if text[start : first.start].strip() or (rest and not rest.startswith(b"#")):
            raise self._withheld("several statements share a line", self.root)
        if not text[:end].endswith((b"\n", b"\r")):
            raise self._withheld("the file does not end with a line ending", self.root)
        return Span(start, end)

    def _fast_branch(self, plan: _Plan, statements: list[ast.stmt], span: Span, call: str, indent: str) -> list[str]:
        gone = {statement.node for statement in plan.deleted}
        kept = {statement.node: value for statement, value in plan.kept.items()}
        lines = []
        for statement in statements:
            if statement in gone:
                continue
            whole = self.source.span(statement)
            if statement in kept:
                assert isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None
                node = kept[statement].node
                assert node is not None
                inner, text = self.source.span(statement.value), self._kept_text(node)
            else:
                inner, text = span, call
            lines.append(self._line(whole, inner, text, indent))
        return lines

    def _kernel_statement(self, statement: ast.stmt, span: Span, call: str, indent: str) -> str:
        return self._line(self.source.span(statement), span, call, indent)

    def _line(self, whole: Span, inner: Span, text: str, indent: str) -> str:
        """A statement with another text in the place of an expression."""
        before = self.source.text[whole.start : inner.start].decode()
        after = self.source.text[inner.end : whole.end].decode()
        if "\n" in before + after:
            raise self._withheld("the statement around the kernel call spans several lines", self.root)
        return f"{indent}{before}{text}{after}{self.source.newline}"

    def _check_indentable(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            for node in ast.walk(statement):
                text = isinstance(node, ast.JoinedStr) or (
                    isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
                )
                if text and node.lineno != node.end_lineno:  # type: ignore[attr-defined]
                    raise self._withheld("a string of several lines would have to be indented", self.root)

    def _withheld(self, reason: str, node: Node) -> Withheld:
        return Withheld(reason, getattr(node.expr, "lineno", node.statement.node.lineno))


def target_name(node: ast.stmt) -> str | None:
    """Name that a plain assignment binds."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        return node.target.id
    return None


def _inside(inner: Span, outer: Span) -> bool:
    return outer.start <= inner.start and inner.end <= outer.end


def _first(match: Match, statement: Statement) -> Node:
    return next((node for node in match.nodes if node.statement is statement), match.root)


def _siblings(function: ast.AST, statement: ast.stmt) -> list[ast.stmt]:
    """The statement list that holds `statement`."""
    for node in ast.walk(function):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and any(one is statement for one in block):
                return block
    raise ValueError("the statement is not in the function")
