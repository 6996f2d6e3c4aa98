"""A loop with its first iteration apart from the others."""

from __future__ import annotations

import ast

from regraft.splitting.program.control_flow import contains_leave, move_exits_to_tails
from regraft.splitting.program.use_marks import mark_truth_use


def without_continue(node: ast.stmt) -> ast.stmt:
    """Return the last statement of a loop's body without each `continue` that ends one of its
    paths, which does nothing there; any other statement as it is."""
    if isinstance(node, ast.Continue):
        return ast.copy_location(ast.Pass(), node)
    if isinstance(node, ast.If) and contains_leave(node, ast.Continue):
        arms = ([*arm[:-1], *map(without_continue, arm[-1:])] for arm in (node.body, node.orelse))
        return ast.copy_location(ast.If(node.test, *arms), node)
    return node


def peel_while(node: ast.While, unused: str) -> ast.For:
    """Return a loop that runs once, whose body is the first iteration of `node` and then `node` for
    the further iterations; a `break` of the first iteration leaves it.

    unused: the name of the new loop's variable, which nothing reads. The parts of `node` are
    shared; its test is marked as one of which only the truth counts.
    """
    stop = ast.If(ast.UnaryOp(ast.Not(), node.test), [*node.orelse, ast.Break()], [])
    mark_truth_use(node.test)
    return make_single_loop(
        node,
        unused,
        [
            stop,
            *single_iteration_body(node),
            mark_peeled(node, ast.While(node.test, node.body, node.orelse)),
        ],
    )


def peel_for(node: ast.For, items: str, unused: str) -> ast.For:
    """Return a loop that runs once, whose body is the first iteration of `node` and then a loop
    over the other elements; a `break` of the first iteration leaves it. The `else` of `node` is
    left out.

    items: the variable of what `node` runs over, which has to have a length and slices. unused: the
    name of the new loop's variable.
    """
    sequence = ast.Name(items, ast.Load())
    empty = ast.Compare(
        ast.Call(ast.Name("len", ast.Load()), [sequence], []), [ast.Eq()], [ast.Constant(0)]
    )
    first = ast.Assign([node.target], ast.Subscript(sequence, ast.Constant(0), ast.Load()))
    leave_empty = ast.If(empty, [ast.Break()], [])
    leave_empty.unlabelled = True  # type: ignore[attr-defined]  # as where a loop ends
    remainder = ast.Subscript(sequence, ast.Slice(ast.Constant(1)), ast.Load())
    following = mark_peeled(node, ast.For(node.target, remainder, node.body, []))
    body = [leave_empty, first, *single_iteration_body(node), following]
    return make_single_loop(node, unused, body)


def single_iteration_body(node: ast.While | ast.For) -> list[ast.stmt]:
    """Return the body of a loop for one iteration: a `continue` is no longer needed, because the
    statements after it moved into the other arms."""
    return [
        without_continue(statement) for statement in move_exits_to_tails(node.body, ast.Continue)
    ]


def mark_peeled(node: ast.stmt, loop: ast.stmt) -> ast.stmt:
    """Set `peeled` of `loop`, the loop over the iterations after the first, and its location to
    that of `node`; return it."""
    loop.peeled = True  # type: ignore[attr-defined]
    return ast.copy_location(loop, node)


def make_single_loop(node: ast.stmt, unused: str, body: list[ast.stmt]) -> ast.For:
    """Return a `for` loop over one element with this body, which a `break` in it can leave. unused:
    the name of its variable."""
    loop = ast.For(
        ast.Name(unused, ast.Store()), ast.Tuple([ast.Constant(0)], ast.Load()), body, []
    )
    return ast.fix_missing_locations(ast.copy_location(loop, node))
