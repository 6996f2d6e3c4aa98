"""Simpler forms of source: what follows a leaving `if` moves into its other arm, and loops have no
`else` and no `return`."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from typing import TypeVar

from regraft.splitting.program.comprehensions import expand_comprehension
from regraft.splitting.program.use_marks import mark_truth_use, mark_uses

__all__ = [
    "WithoutLeavingElses",
    "assign_to",
    "attach_following",
    "changed_names",
    "expand_comprehension",
    "mark_uses",
    "move_exits_to_tails",
    "peel_for",
    "peel_while",
    "single_iteration_body",
    "without_else",
    "without_loop_returns",
    "without_try_returns",
]

Loop = TypeVar("Loop", bound="ast.For | ast.While")
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


def assign_to(node: ast.AST, target: str, value: ast.expr) -> ast.stmt:
    """Return the assignment of a value to a name, located at `node`."""
    assignment = ast.Assign([ast.Name(target, ast.Store())], value)
    return ast.fix_missing_locations(ast.copy_location(assignment, node))


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
    if not body:
        return
    test = body[-1]
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


def leaves_outer_loop(body: list[ast.stmt]) -> bool:
    """Return whether the statements, the `else` of a loop, contain a `break` or `continue`, which
    leaves the loop around that loop."""
    return any(
        isinstance(statement, leave) or contains_leave(statement, leave)
        for statement in body
        for leave in (ast.Break, ast.Continue)
    )


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


def changed_names(node: ast.AST) -> set[str]:
    """Return the names of the variables below a node that are changed in place by `x[i] = y` or an
    attribute that ends in `_`, as in `x.add_(y)`. Methods of lists such as `append` do not
    count."""
    subscripts = (
        part
        for part in ast.walk(node)
        if isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Store)
    )
    methods = (
        part
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and part.attr.endswith("_")
    )
    bases = [*(subscript.value for subscript in subscripts), *(method.value for method in methods)]
    return {base.id for base in bases if isinstance(base, ast.Name)}


def without_continue(node: ast.stmt) -> ast.stmt:
    """Return the last statement of a loop's body without each `continue` that ends one of its
    paths, which does nothing there; any other statement as it is."""
    if isinstance(node, ast.Continue):
        return ast.copy_location(ast.Pass(), node)
    if isinstance(node, ast.If) and contains_leave(node, ast.Continue):
        arms = ([*arm[:-1], *map(without_continue, arm[-1:])] for arm in (node.body, node.orelse))
        return ast.copy_location(ast.If(node.test, *arms), node)
    return node


def never_falls_through(body: list[ast.stmt]) -> bool:
    """Return whether control never falls out of the end of the statements: the last leaves, or is
    an `if` whose arms both do. False for no statements."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.If):
        return never_falls_through(last.body) and never_falls_through(last.orelse)
    return isinstance(last, (ast.Return, ast.Raise, ast.Continue, ast.Break))


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
    return make_single_loop(
        node,
        unused,
        [leave_empty, first, *single_iteration_body(node), following],
    )


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
