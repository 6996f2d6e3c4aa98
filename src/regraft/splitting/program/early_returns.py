"""Returns in loops and in `try` statements become assignments to variables, and a return behind the
loop or the `try` that tests them."""

from __future__ import annotations

import ast
import copy

from regraft.splitting.program.control_flow import (
    assign_to,
    contains_leave,
    move_exits_to_tails,
    returns_in_loop,
    returns_in_loop_or_with,
)


def without_loop_returns(body: list[ast.stmt], result: str, returned: str) -> list[ast.stmt]:
    """Return the same statements with each return in a loop as a `break` and assignments to two
    variables; `body` itself where no return is in a loop.

    result: the variable of the returned value. returned: the variable that is True after a return.
    """
    if not any(map(returns_in_loop, body)):
        return body
    replaced = _LoopReturns(result, returned).replace_block(copy.deepcopy(body), None)
    return [assign_to(body[0], returned, ast.Constant(False)), *replaced]


def without_try_returns(body: list[ast.stmt], result: str, returned: str) -> list[ast.stmt]:
    """Return the same statements with each return in a `try` as assignments to two variables, after
    which the statements of its block that follow are left out; `body` itself where no return is in
    a `try`.

    result, returned: as in `without_loop_returns`.
    """
    if not any(isinstance(node, ast.Try) for statement in body for node in ast.walk(statement)):
        return body
    without = _TryReturns(result, returned)
    replaced = [without.visit(copy.deepcopy(statement)) for statement in body]
    flat = [part for parts in replaced for part in (parts if isinstance(parts, list) else [parts])]
    return [assign_to(body[0], returned, ast.Constant(False)), *flat] if without.count else body


class _TryReturns(ast.NodeTransformer):
    """Replaces each return in a `try` by assignments to two variables, and puts an `if` with the
    return after the `try`. count: the number of `try` statements that were changed."""

    def __init__(self, result: str, returned: str) -> None:
        self.replacement, self.count = _LoopReturns(result, returned), 0

    def visit_Try(self, node: ast.Try) -> ast.AST | list[ast.stmt]:
        """Return the `try` without returns and the `if` after it; a `try` without returns as it
        is."""
        self.generic_visit(node)
        if not contains_leave(node, ast.Return):
            return node
        self.count += 1
        returned = ast.Name(self.replacement.returned, ast.Load())
        in_body = any(
            isinstance(statement, ast.Return) or contains_leave(statement, ast.Return)
            for statement in node.body
        )
        node.body = self.without_returns(node.body)
        for handler in node.handlers:
            handler.body = self.without_returns(handler.body)
        node.orelse = self.without_returns(node.orelse)
        if node.orelse and in_body:
            node.orelse = [ast.If(ast.UnaryOp(ast.Not(), returned), node.orelse, [])]
        leaving = ast.If(returned, [ast.Return(ast.Name(self.replacement.result, ast.Load()))], [])
        ast.copy_location(leaving, node)
        return [ast.fix_missing_locations(node), ast.fix_missing_locations(leaving)]

    def without_returns(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Return the statements of a block with their returns replaced."""
        return self.replacement.replace_block(move_exits_to_tails(statements, ast.Return), [])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Return an inner function unchanged."""
        return node


class _LoopReturns:
    """Replaces each return in a loop by assignments to two variables (the value, and that there is
    one), followed by statements that leave the loop. The statements are changed in place.

    `leave` are the statements that leave, in each method; None outside of loops, where returns
    stay.
    """

    def __init__(self, result: str, returned: str) -> None:
        self.result, self.returned = result, returned

    def replace_block(
        self, statements: list[ast.stmt], leave: list[ast.stmt] | None
    ) -> list[ast.stmt]:
        """Return the statements with each return in them replaced by assignments of its value and
        of a flag, followed by the statements `leave`."""
        return [
            ast.fix_missing_locations(ast.copy_location(part, statement))
            for statement in statements
            for part in self.replace(statement, leave)
        ]

    def replace(self, statement: ast.stmt, leave: list[ast.stmt] | None) -> list[ast.stmt]:
        """Return the statements that replace one statement: for a `return` the assignments and
        `leave`, unless that is None; for a loop with returns the loop, in which they are
        assignments and a `break`, with statements after it that leave; another statement itself,
        with the ones inside of it replaced."""
        if isinstance(statement, ast.Return) and leave is not None:
            value = statement.value or ast.Constant(None)
            return [
                assign_to(statement, self.result, value),
                assign_to(statement, self.returned, ast.Constant(True)),
                *leave,
            ]
        if isinstance(statement, (ast.For, ast.While)) and returns_in_loop(statement):
            return self.replace_in_loop(statement, leave)
        if isinstance(statement, (ast.If, ast.With)):
            statement.body = self.replace_block(statement.body, leave)
        if isinstance(statement, ast.If):
            statement.orelse = self.replace_block(statement.orelse, leave)
        return [statement]

    def replace_in_loop(
        self, loop: ast.For | ast.While, leave: list[ast.stmt] | None
    ) -> list[ast.stmt]:
        """Change each return in the loop, in place, to assignments and a `break`; return the loop
        and after it the statements `leave` (None: a `return`). These run only if a return was
        taken, which needs no test after an endless loop."""
        endless = is_endless(loop)
        ends_by_return = not (loop.orelse or contains_leave(loop, ast.Break))
        loop.ends_by_return = ends_by_return  # type: ignore[union-attr]
        loop.body = self.replace_block(loop.body, [ast.Break()])
        loop.orelse = self.replace_block(move_exits_to_tails(loop.orelse, ast.Return), [])
        leaving = leave
        if leaving is None:
            leaving = [ast.Return(ast.Name(self.result, ast.Load()))]
        if endless:
            return [loop, *leaving]
        return [loop, ast.If(ast.Name(self.returned, ast.Load()), leaving, [])]


def attach_following(body: list[ast.stmt], result: str, returned: str) -> None:
    """Attach to each `for` loop that only a return can end early the statements which follow it
    where there was none, as `following`: where the loop is unrolled, they run at its end, when each
    variable holds what the last iteration left, and not what any return left.

    body: statements after `without_loop_returns`, with each return at the end of a path. result,
    returned: as there; `following` assigns them in the place of its returns.
    """
    test = body[-1] if body else None
    if not isinstance(test, ast.If):
        return
    attach_following(test.body, result, returned)
    attach_following(test.orelse, result, returned)
    loop = body[-2] if len(body) > 1 else None
    if not isinstance(loop, ast.For) or not getattr(loop, "ends_by_return", False):
        return
    if not any(map(returns_in_loop_or_with, test.orelse)):
        statements = copy.deepcopy(test.orelse)
        replaced = _LoopReturns(result, returned).replace_block(statements, [])
        loop.following = replaced  # type: ignore[attr-defined]


def is_endless(loop: ast.For | ast.While) -> bool:
    """Return whether a loop is `while True` and contains no `break` that ends it."""
    is_while_true = isinstance(loop, ast.While) and is_true(loop.test)
    return is_while_true and not contains_leave(loop, ast.Break)


def is_true(test: ast.expr) -> bool:
    """Return whether a test is a constant that is true."""
    return isinstance(test, ast.Constant) and bool(test.value)
