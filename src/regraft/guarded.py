"""Rewriting a match that holds under conditions of the source: mode version over a range of statements.

The statements from the first matched one to the one of the output become the other branch, unchanged; the kernel runs
where the conditions hold. They are tested, and the kernel's arguments read, before the first of these statements.
"""

from __future__ import annotations

import ast
from functools import cached_property

from regraft.layout import Layout, indent_unit, indentation, without_parentheses
from regraft.match import Holds, Test, uses
from regraft.render import Renderer
from regraft.source import Edit, Span
from regraft.structure import guards
from regraft.structure.guards import Atom, Guard
from regraft.structure.model import Node
from regraft.substitute import Patch, Rewriter, target_name

_LEAVING = (ast.Raise, ast.Return, ast.Break, ast.Continue, ast.Assert, ast.Delete)
_TESTABLE = (
    ast.Name, ast.Attribute, ast.Constant, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.expr_context, ast.cmpop,
    ast.boolop, ast.unaryop,
)  # fmt: skip


class GuardedRewriter(Rewriter):
    """The patch of a match under conditions, mode version; raises Withheld."""

    def patch(self) -> Patch:
        root = self.root.expr
        if not isinstance(root, ast.expr):
            raise self._withheld("the last step is an in-place statement", self.root)
        self._check_places(root, self.root)
        for node in self.match.nodes:
            self._sibling(node)
        self._check_skipped()
        span = without_parentheses(self.source, self.source.span(root))
        statements = self._statements
        indent = indentation(self.source, self.source.span(statements[0]).start)
        renderer = Renderer(
            self.match, self.imports, span, (), {}, time=self._start, runs=lambda node: self._runs(node.guard)
        )
        condition = " and ".join(self._conditions(renderer))
        layout = Layout(self.source, span, indent + indent_unit(self.source) * bool(condition))
        call = renderer.call(self.match.pattern.target, layout.call)
        if condition:
            fast = self._kernel_statement(statements[-1], span, call, layout.indent)
            return self._branches(statements, condition, [fast], renderer.used)
        whole = Span(self.source.span(statements[0]).start, self.source.span(statements[-1]).end)
        self._check_comments(whole, self.root)
        self._block_lines(statements)
        text = self._kernel_statement(statements[-1], span, call, "").rstrip("\r\n")
        return Patch(self.match, "substitute", (Edit(whole, text),), whole, frozenset(renderer.used))

    # the range

    @cached_property
    def _siblings(self) -> list[ast.stmt]:
        root = self.root.statement.node
        if not isinstance(root, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr):
            raise self._withheld(f"the kernel would stand in the head of a {type(root).__name__.lower()}", self.root)
        around = self._statements_around(root)
        return around[: around.index(root) + 1]

    @cached_property
    def _places(self) -> dict[int, int]:
        """Which statement of the block each expression is in."""
        return {id(one): number for number, outer in enumerate(self._siblings) for one in ast.walk(outer)}

    def _sibling(self, node: Node) -> int:
        found = self._places.get(id(node.expr))
        if found is None:
            raise self._withheld("the nodes are in different branches", node)
        return found

    @cached_property
    def _statements(self) -> list[ast.stmt]:
        return self._siblings[min(map(self._sibling, self.match.nodes)) :]

    @cached_property
    def _inside(self) -> list[Node]:
        """Nodes of the range."""
        first = len(self._siblings) - len(self._statements)
        return [node for node in self.match.body.nodes if self._places.get(id(node.expr), -1) >= first]

    @cached_property
    def _start(self) -> int:
        """The time just before the first node of the range."""
        return min(node.time for node in self._inside)

    # what the fast branch leaves out

    @cached_property
    def _base(self) -> Guard:
        return guards.conjoin(self.match.nodes[0].guard, self.match.condition)

    def _runs(self, guard: Guard) -> bool:
        return guards.satisfiable(guards.conjoin(self._base, guard))

    def _check_skipped(self) -> None:
        """Nothing that the range does where the conditions hold is missed, and nothing that it binds is read later."""
        for node in self._inside:
            if not self._runs(node.guard):
                continue
            if node not in self.matched:
                leaves = isinstance(node.statement.node, _LEAVING) and node.statement is not self.root.statement
                if node.effect or node.random or leaves:
                    raise self._withheld("a step in between may have effects, or leave the function", node)
                if any(use.time > self.root.time and self._runs(guard) for guard, use in uses(node.output)):
                    raise self._withheld("a value that is computed in between is used later", node)
            elif node is not self.root:
                for guard, use in uses(node.output):
                    if use not in self.matched and self._runs(guard) and not self._only_for_match(use):
                        raise self._withheld(f"{use.spelling} of an inner value is read", use)
        bound = self._bound_names()
        end = self._statements[-1].end_lineno or 0
        for one in ast.walk(self.match.body.node):
            if isinstance(one, ast.Name) and one.id in bound and one.lineno > end and isinstance(one.ctx, ast.Load):
                raise self._withheld(f"{one.id} is bound in between and read later", self.root)
        for one in (inner for outer in self._statements for inner in ast.walk(outer)):
            if isinstance(one, ast.stmt) and isinstance(one, _LEAVING) and one is not self._statements[-1]:
                known = [node for node in self._inside if node.statement.node is one]
                if not known or any(self._runs(node.guard) for node in known):
                    raise self._withheld(f"a {type(one).__name__.lower()} stands in between", self.root)

    def _only_for_match(self, use: Node) -> bool:
        """Whether an attribute of an inner value is read for the matched nodes alone, like the dtype of a cast."""
        return use in self._inside and all(one in self.matched for one in use.output.every_use())

    def _bound_names(self) -> set[str]:
        """Names that the range binds to values that it does not make: the values do not tell who reads these names."""
        made = {node.output for node in self._inside}
        found = set()
        for name, events in self.match.body.log.items():
            for event in events:
                if self._start <= event.time <= self.root.time and event.statement and event.value not in made:
                    found.add(name)
        return found - {target_name(self._statements[-1])}

    # conditions

    def _conditions(self, renderer: Renderer) -> list[str]:
        texts: list[str] = []
        for test in self.match.tests:
            if isinstance(test, Test):
                texts.append(f"{renderer.spell(test.predicate)}({renderer.value(test.subject)})")
                continue
            assert isinstance(test, Holds)
            for part in guards.conjuncts(test.guard):
                if guards.implies(self.match.nodes[0].guard, part):
                    continue
                self._check_testable(part)
                text = guards.text(part)
                texts.append(f"({text})" if isinstance(part, guards.Or) else text)
        return list(dict.fromkeys(texts))

    def _check_testable(self, guard: Guard) -> None:
        """The condition gives before the range what it gives where the source tests it."""
        for atom in guards.atoms(guard):
            if not self._is_testable(atom):
                raise self._withheld(f"`{atom.text}` cannot be tested before the first step", self.root)

    def _is_testable(self, atom: Atom) -> bool:
        try:
            expression = ast.parse(atom.text, mode="eval")
        except SyntaxError:
            return False
        body = self.match.body
        for one in ast.walk(expression.body):
            if not isinstance(one, _TESTABLE):
                return False
            if isinstance(one, ast.Name) and one.id in body.log:
                before = body.reaching(one.id, self._start)
                if before is None or before is not body.reaching(one.id, atom.time):
                    return False
            if isinstance(one, ast.Attribute) and self._changes(atom.time):
                return False
        return atom.time > 0

    def _changes(self, time: int) -> bool:
        """Whether something that runs before `time` may change attributes."""
        return any(
            self._start < node.time < time and node.effect and node not in self.matched and self._runs(node.guard)
            for node in self.match.body.nodes
        )
