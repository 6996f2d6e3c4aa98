"""Where statements leave their block: what follows a leaving `if` moves into its other arm, and
questions about statements that leave."""

from __future__ import annotations

import ast

# loops and functions, whose exits do not leave the statements around them
LOOPS = (ast.For, ast.While, ast.FunctionDef, ast.Lambda)


def move_exits_to_tails(body: list[ast.stmt], leave: type[ast.stmt]) -> list[ast.stmt]:
    """Return the same statements with `leave` (Return or Continue) only at the ends of their paths.

    The statements after an `if` with `leave` in it are copied into its arms that fall through;
    those after a `leave` are dropped. A `leave` in a `with`, `try` or loop stays where it is.
    """
    for number, statement in enumerate(body):
        if isinstance(statement, leave):
            return body[: number + 1]
        if isinstance(statement, ast.If) and contains_leave(statement, leave):
            following = body[number + 1 :]
            arms = (
                move_exits_to_tails(arm if never_falls_through(arm) else [*arm, *following], leave)
                for arm in (statement.body, statement.orelse)
            )
            branch = ast.If(statement.test, *arms)
            return [*body[:number], ast.copy_location(branch, statement)]
    return body


def assign_to(node: ast.AST, target: str, value: ast.expr) -> ast.stmt:
    """Return the assignment of a value to a name, located at `node`."""
    assignment = ast.Assign([ast.Name(target, ast.Store())], value)
    return ast.fix_missing_locations(ast.copy_location(assignment, node))


def returns_in_loop(statement: ast.stmt) -> bool:
    """Return whether a return stands in a loop: in one within the statement, or in the statement if
    it is a loop."""
    parts = [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.stmt)]
    if isinstance(statement, (ast.For, ast.While)):
        return any(
            isinstance(part, ast.Return)
            or contains_leave(part, ast.Return)
            or returns_in_loop(part)
            for part in parts
        )
    return not isinstance(statement, ast.FunctionDef) and any(map(returns_in_loop, parts))


def returns_in_loop_or_with(statement: ast.stmt) -> bool:
    """Return whether a return stands in a loop or a `with` in the statement."""
    in_with = any(
        isinstance(node, ast.With) and contains_leave(node, ast.Return)
        for node in ast.walk(statement)
    )
    return in_with or returns_in_loop(statement)


def contains_leave(statement: ast.stmt | ast.ExceptHandler, leave: type[ast.stmt]) -> bool:
    """Return whether a statement of the type `leave` stands inside of a statement (not itself), but
    not in the loops and functions in it."""
    parts = [
        child
        for child in ast.iter_child_nodes(statement)
        if isinstance(child, (ast.stmt, ast.ExceptHandler)) and not isinstance(child, LOOPS)
    ]
    return any(isinstance(part, leave) or contains_leave(part, leave) for part in parts)


def never_falls_through(body: list[ast.stmt]) -> bool:
    """Return whether control never falls out of the end of the statements: the last leaves, or is
    an `if` whose arms both do. False for no statements."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.If):
        return never_falls_through(last.body) and never_falls_through(last.orelse)
    return isinstance(last, (ast.Return, ast.Raise, ast.Continue, ast.Break))
