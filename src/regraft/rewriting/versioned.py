"""Rewriting a match that holds under conditions of the source: mode version over a range of statements.

The statements from the first matched one to the one of the output become the other branch, unchanged; the kernel runs
where the conditions hold. They are tested, and the kernel's arguments read, before the first of these statements.
"""

from __future__ import annotations

import ast
from functools import cached_property

from regraft.matching.result import Holds, Skips, Test
from regraft.matching.uses import uses
from regraft.rewriting.render import Renderer
from regraft.rewriting.single_output import Patch, Rewriter, target_name
from regraft.source.layout import Layout, indent_unit, indentation, without_parentheses
from regraft.source.names import defaults
from regraft.source.text import Edit, Span
from regraft.structure import guards
from regraft.structure.calls import own_op
from regraft.structure.guards import Atom, Guard
from regraft.structure.model import Node

_LEAVING = (ast.Raise, ast.Return, ast.Break, ast.Continue, ast.Assert, ast.Delete)
_TESTABLE = (
    ast.Name, ast.Attribute, ast.Constant, ast.Compare, ast.UnaryOp, ast.expr_context, ast.cmpop, ast.unaryop,
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
        if self._is_versioned():
            raise self._withheld("the kernel already runs in the other branch, under other conditions", self.root)
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

    def _is_versioned(self) -> bool:
        """Whether a rewrite has left the range as the other branch of the same kernel: one version is enough."""
        kernel = self.match.pattern.kernel
        first = self._statements[0]
        for outer in ast.walk(self.match.body.node):
            if not isinstance(outer, ast.If) or not any(self._calls(one, kernel) for one in outer.body):
                continue
            returns = isinstance(outer.body[-1], ast.Return) and outer in self._siblings
            if returns or any(one is first for branch in outer.orelse for one in ast.walk(branch)):
                return True
        return False

    def _calls(self, statement: ast.stmt, kernel: str) -> bool:
        calls = (one for one in ast.walk(statement) if isinstance(one, ast.Call))
        named = (self.imports.names.resolve(one.func) or "" for one in calls)
        return any(kernel in (one, own_op(one)) for one in named)

    # what the fast branch leaves out

    @cached_property
    def _entry(self) -> Guard:
        """The condition under which the range is reached."""
        return self.match.body.entered[self._statements[0]]

    @cached_property
    def _needed(self) -> tuple[Guard, ...]:
        """What must hold beyond that: the conditions of the match, and those under which its nodes run."""
        skipped = {test.node for test in self.match.tests if isinstance(test, Skips)}
        parts = [part for test in self.match.tests if isinstance(test, Holds) for part in guards.conjuncts(test.guard)]
        parts += [part for one in self.match.nodes if one not in skipped for part in guards.conjuncts(one.guard)]
        held, found = self._entry, []
        for part in dict.fromkeys(parts):
            if not guards.implies(held, part):
                found.append(part)
                held = guards.conjoin(held, part)
        return tuple(sorted(found, key=lambda part: min((abs(one.time) for one in guards.atoms(part)), default=0)))

    @cached_property
    def _base(self) -> Guard:
        result = self._entry
        for part in self._needed:
            result = guards.conjoin(result, part)
        return result

    def _runs(self, guard: Guard) -> bool:
        return guards.satisfiable(guards.conjoin(self._base, guard))

    def _check_skipped(self) -> None:
        """Nothing that the range does where the conditions hold is missed, and nothing that it binds is read later."""
        self._check_values()
        self._check_names()
        self._check_statements()

    def _check_values(self) -> None:
        for node in self._inside:
            if not self._runs(node.guard):
                continue
            if node not in self.matched:
                if node.effect or node.random:
                    raise self._withheld("a step in between may have effects, or leave the function", node)
                if any(use.time > self.root.time and self._runs(guard) for guard, use in uses(node.output)):
                    raise self._withheld("a value that is computed in between is used later", node)
            elif node is not self.root:
                for guard, use in uses(node.output):
                    if use not in self.matched and self._runs(guard) and not self._only_for_match(use):
                        raise self._withheld(f"{use.spelling} of an inner value is read", use)

    def _check_names(self) -> None:
        bound = self._bound_names()
        inside = {id(one) for outer in self._statements for one in ast.walk(outer)}
        changed = {id(one.target) for one in ast.walk(self.match.body.node) if isinstance(one, ast.AugAssign)}
        for one in ast.walk(self.match.body.node):
            if not isinstance(one, ast.Name) or one.id not in bound or id(one) in inside:
                continue
            if not isinstance(one.ctx, ast.Store) or id(one) in changed:
                raise self._withheld(f"{one.id} is bound in between and read elsewhere", self.root)

    def _check_statements(self) -> None:
        first = len(self._siblings) - len(self._statements)
        for site, name in self.match.body.inlined.items():
            if name.startswith("self.") and self._places.get(id(site), -1) >= first:
                known = [node for node in self._inside if node.expr is site]
                if not known or any(self._runs(node.guard) for node in known):
                    raise self._withheld(f"{name}, which a subclass may override, would not be called", self.root)
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
        texts = [
            f"{renderer.spell(test.predicate)}({renderer.value(test.subject)})"
            for test in self.match.tests
            if isinstance(test, Test)
        ]
        for part in self._needed:
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
        names = [one for one in ast.walk(expression.body) if isinstance(one, ast.Name)]
        for one in ast.walk(expression.body):
            chained = isinstance(one, ast.Compare) and (len(one.ops) > 1 or isinstance(one.left, ast.Compare))
            if not isinstance(one, _TESTABLE) or chained:
                return False  # not to be recognised as the same test in another place
            if isinstance(one, ast.Name) and one.id in body.log:
                before = body.reaching(one.id, self._start)
                if before is None or before is not body.reaching(one.id, atom.time) or before.origin == "unknown":
                    return False
            if isinstance(one, ast.Name) and one.id in self.imports.names.rebound:
                return False
        fixed = atom.kind == "none" or all(self._is_immutable(one) for one in names)
        attributes = any(isinstance(one, ast.Attribute) for one in ast.walk(expression.body))
        return atom.time > 0 and ((fixed and not attributes) or not self._changes(atom.time))

    def _is_immutable(self, name: ast.Name) -> bool:
        """Whether a name certainly holds a number, a string or None: nobody can change those from outside."""
        value = self.match.body.reaching(name.id, self._start)
        if value is not None and value.kind in ("int", "bool", "str", "none", "scalar"):
            return True
        if value is None or value.origin != "param":
            return False
        arguments = self.match.body.node.args
        usual = {one.arg: default for one, default in defaults(arguments)}
        constant = isinstance(usual.get(value.name), ast.Constant)
        everything = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        annotated = (one.annotation for one in everything if one.arg == value.name)
        return constant or any(one is not None and "bool" in ast.unparse(one) for one in annotated)

    def _changes(self, time: int) -> bool:
        """Whether something that runs before `time` may change attributes."""
        return any(node.effect and self._runs(node.guard) for node in self.match.between(self._start, time))
