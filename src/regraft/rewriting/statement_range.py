"""The range of statements that a guarded rewrite replaces, and the conditions under which its code
runs."""

from __future__ import annotations

import ast
from functools import cached_property

from regraft.matching.result import Holds, Skips
from regraft.rewriting.single_output import Rewriter
from regraft.structure import guards
from regraft.structure.guards import Guard
from regraft.structure.values_and_nodes import Node


class RangeRewriter(Rewriter):
    """The range of statements from the first matched one to that of the output, and the conditions
    under which it runs; the patch is that of `GuardedRewriter`."""

    @cached_property
    def _preceding_statements(self) -> list[ast.stmt]:
        """Return the statements of the root's block from its beginning to the root's own, included.

        Raises Withheld where the root is in the head of a compound statement, such as the test of
        an `if`.
        """
        root = self.root.statement.node
        if not isinstance(root, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr):
            raise self._withholding(
                f"the kernel would stand in the head of a {type(root).__name__.lower()}", self.root
            )
        block = self._block_around(root)
        return block[: block.index(root) + 1]

    @cached_property
    def _statement_numbers(self) -> dict[int, int]:
        """Return for the `id` of each syntax node in `_preceding_statements` the index of its
        statement."""
        return {
            id(ast_node): number
            for number, outer in enumerate(self._preceding_statements)
            for ast_node in ast.walk(outer)
        }

    def _statement_number(self, node: Node) -> int:
        """Return the index in `_preceding_statements` of the statement that contains a node's
        expression; raise Withheld where none does."""
        number = self._statement_numbers.get(id(node.expr))
        if number is None:
            raise self._withholding("the nodes are in different branches", node)
        return number

    @cached_property
    def _range_statements(self) -> list[ast.stmt]:
        """Return the statements from the first matched one to the root's."""
        return self._preceding_statements[min(map(self._statement_number, self.match.nodes)) :]

    @cached_property
    def _range_nodes(self) -> list[Node]:
        """Return the nodes of the body, matched or not, whose expressions lie in the range of
        statements."""
        first = len(self._preceding_statements) - len(self._range_statements)
        return [
            node
            for node in self.match.body.nodes
            if self._statement_numbers.get(id(node.expr), -1) >= first
        ]

    @cached_property
    def _range_start(self) -> int:
        """Return the time of the first node of the range."""
        return min(node.time for node in self._range_nodes)

    # the conditions

    @cached_property
    def _entry_guard(self) -> Guard:
        """Return the guard (a formula of the source's tests) under which the first statement of the
        range runs."""
        return self.match.body.entered[self._range_statements[0]]

    @cached_property
    def _needed_guards(self) -> tuple[Guard, ...]:
        """Return the guards of the match's conditions and nodes that `_entry_guard` does not imply,
        and which have to be tested before the range, in the order of the source.

        Nodes that the kernel skips by itself are left out.
        """
        tests, nodes = self.match.tests, self.match.nodes
        skipped = {test.node for test in tests if isinstance(test, Skips)}
        conditions = [test.guard for test in tests if isinstance(test, Holds)]
        conditions += [node.guard for node in nodes if node not in skipped]
        parts = [part for guard in conditions for part in guards.conjuncts(guard)]
        implied, needed = self._entry_guard, []
        for part in dict.fromkeys(parts):
            if not guards.implies(implied, part):
                needed.append(part)
                implied = guards.conjoin(implied, part)
        return tuple(sorted(needed, key=_time_of_guard))

    @cached_property
    def _fast_guard(self) -> Guard:
        """Return the guard under which the kernel runs: that of the range's entry and all needed
        ones."""
        result = self._entry_guard
        for part in self._needed_guards:
            result = guards.conjoin(result, part)
        return result

    def _can_run(self, guard: Guard) -> bool:
        """Return whether `guard` can hold together with the conditions under which the kernel
        runs."""
        return guards.satisfiable(guards.conjoin(self._fast_guard, guard))


def _time_of_guard(guard: Guard) -> int:
    """Return the time of the first test in a guard; 0 for a guard without tests."""
    return min((abs(atom.time) for atom in guards.atoms(guard)), default=0)
