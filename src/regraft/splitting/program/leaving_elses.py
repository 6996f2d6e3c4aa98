"""The `else` of a loop follows the loop as an `if`, so that what leaves from it leaves the right
statements."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from typing import TypeVar

from regraft.splitting.program.control_flow import (
    assign_to,
    contains_leave,
    returns_in_loop_or_with,
)

Loop = TypeVar("Loop", bound="ast.For | ast.While")


class WithoutLeavingElses(ast.NodeTransformer):
    """Rewrites each `else` of a loop that contains a `break` or `continue` of the loop around it,
    or a loop or `with` that a return leaves: it follows the loop as an `if`.

    unused: returns a new name for the variable that this `if` tests.
    """

    def __init__(self, unused: Callable[[], str]) -> None:
        self.unused = unused

    def replace_else(self, node: ast.For | ast.While) -> ast.AST | list[ast.stmt]:
        """Return the statements of `without_else` for a loop whose `else` leaves; any other loop as
        it is. Loops in it are rewritten in place."""
        self.generic_visit(node)
        leaving = leaves_outer_loop(node.orelse) or any(map(returns_in_loop_or_with, node.orelse))
        return [*without_else(node, self.unused())] if leaving else node

    visit_For = visit_While = replace_else

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Return an inner function unchanged: it is followed where it is called."""
        return node  # an inner function is followed where it is called


def without_else(node: Loop, exhausted: str) -> tuple[ast.stmt, Loop, ast.stmt]:
    """Return a loop without its `else`, which has to have statements, between two statements that
    together have the same effect; `node` stays as it is.

    The first sets the variable `exhausted` to True, the last runs the `else` if no `break` has set
    it to False.
    """
    loop = copy.deepcopy(node)
    loop.body, loop.orelse = _BreakMarker(exhausted).mark_block(loop.body), []
    test = ast.copy_location(
        ast.If(ast.Name(exhausted, ast.Load()), node.orelse, []), node.orelse[0]
    )
    return assign_to(node, exhausted, ast.Constant(True)), loop, ast.fix_missing_locations(test)


class _BreakMarker(ast.NodeTransformer):
    """Puts `name = False` before each `break` of a loop, in place; `exhausted` is the name."""

    def __init__(self, exhausted: str) -> None:
        self.exhausted = exhausted

    def mark_block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Return the statements with the assignments before the loop's breaks."""
        return self.generic_visit(ast.Module(body, [])).body  # type: ignore[attr-defined,no-any-return]

    def visit_Break(self, node: ast.Break) -> list[ast.stmt]:
        """Return the assignment and the `break`, which take the place of the `break`."""
        return [assign_to(node, self.exhausted, ast.Constant(False)), node]

    def visit_inner_loop(self, node: ast.For | ast.While) -> ast.AST:
        """Mark the `else` of a loop within the loop only: a `break` in its body leaves the inner
        loop."""
        node.orelse = self.mark_block(node.orelse)
        return node

    visit_For = visit_While = visit_inner_loop

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Return an inner function unchanged."""
        return node


def leaves_outer_loop(body: list[ast.stmt]) -> bool:
    """Return whether the statements, the `else` of a loop, contain a `break` or `continue`, which
    leaves the loop around that loop."""
    return any(
        isinstance(statement, leave) or contains_leave(statement, leave)
        for statement in body
        for leave in (ast.Break, ast.Continue)
    )
