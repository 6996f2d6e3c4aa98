"""Source in a simpler form: what follows a leaving `if` goes into its other side, comprehensions become loops."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from typing import TypeVar

Loop = TypeVar("Loop", bound="ast.For | ast.While")
LOOPS = (ast.For, ast.While, ast.FunctionDef, ast.Lambda)


def tails(body: list[ast.stmt], leave: type[ast.stmt]) -> list[ast.stmt]:
    """The same statements, where `leave` (Return or Continue) stands only at the end of its path."""
    for number, statement in enumerate(body):
        if isinstance(statement, leave):
            return body[: number + 1]
        if isinstance(statement, ast.If) and holds(statement, leave):
            after = body[number + 1 :]
            arms = (tails(arm if ends(arm) else [*arm, *after], leave) for arm in (statement.body, statement.orelse))
            made = ast.If(statement.test, *arms)
            return [*body[:number], ast.copy_location(made, statement)]
    return body


class WithoutLeavingElses(ast.NodeTransformer):
    """Lets no else of a loop leave the loop around it, or hold a loop or a `with` that a return leaves.

    unused: gives names for variables.
    """

    def __init__(self, unused: Callable[[], str]) -> None:
        self.unused = unused

    def loop(self, node: ast.For | ast.While) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        leaving = leaves_around(node.orelse) or any(map(returns_inside, node.orelse))
        return [*without_else(node, self.unused())] if leaving else node

    visit_For = visit_While = loop

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node  # it is followed where it is called


def without_else(node: Loop, exhausted: str) -> tuple[ast.stmt, Loop, ast.stmt]:
    """A loop without its else, which follows it, where the variable of this name says that no break was reached."""
    loop = copy.deepcopy(node)
    loop.body, loop.orelse = _Marked(exhausted).block(loop.body), []
    test = ast.copy_location(ast.If(ast.Name(exhausted, ast.Load()), node.orelse, []), node.orelse[0])
    return set_to(node, exhausted, ast.Constant(True)), loop, ast.fix_missing_locations(test)


class _Marked(ast.NodeTransformer):
    """Sets a variable to False before each `break` of a loop."""

    def __init__(self, exhausted: str) -> None:
        self.exhausted = exhausted

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return self.generic_visit(ast.Module(body, [])).body  # type: ignore[attr-defined,no-any-return]

    def visit_Break(self, node: ast.Break) -> list[ast.stmt]:
        return [set_to(node, self.exhausted, ast.Constant(False)), node]

    def inner(self, node: ast.For | ast.While) -> ast.AST:
        node.orelse = self.block(node.orelse)
        return node

    visit_For = visit_While = inner

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node


def set_to(node: ast.AST, target: str, value: ast.expr) -> ast.stmt:
    made = ast.Assign([ast.Name(target, ast.Store())], value)
    return ast.fix_missing_locations(ast.copy_location(made, node))


def without_loop_returns(body: list[ast.stmt], result: str, returned: str) -> list[ast.stmt]:
    """The same statements, where a return in a loop becomes two variables, of these names, and a break."""
    if not any(map(returns_in_loop, body)):
        return body

    def taken_out(statements: list[ast.stmt], leave: list[ast.stmt] | None) -> list[ast.stmt]:
        """leave: what follows instead of a return; None outside of loops, where it stays one."""
        found: list[ast.stmt] = []
        for one in statements:
            made = [one]
            if isinstance(one, ast.Return) and leave is not None:
                value = one.value or ast.Constant(None)
                made = [set_to(one, result, value), set_to(one, returned, ast.Constant(True)), *leave]
            elif isinstance(one, (ast.For, ast.While)) and returns_in_loop(one):
                endless = isinstance(one, ast.While) and is_true(one.test) and not holds(one, ast.Break)
                one.body = taken_out(one.body, [ast.Break()])
                one.orelse = taken_out(tails(one.orelse, ast.Return), [])
                end: list[ast.stmt] = [ast.Return(ast.Name(result, ast.Load()))]
                rest = leave if leave is not None else end
                made = [one, *rest] if endless else [one, ast.If(ast.Name(returned, ast.Load()), rest, [])]
            elif isinstance(one, (ast.If, ast.With)):
                one.body = taken_out(one.body, leave)
                if isinstance(one, ast.If):
                    one.orelse = taken_out(one.orelse, leave)
            found.extend(ast.fix_missing_locations(ast.copy_location(each, one)) for each in made)
        return found

    return [set_to(body[0], returned, ast.Constant(False)), *taken_out(copy.deepcopy(body), None)]


def is_true(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and bool(test.value)


def leaves_around(body: list[ast.stmt]) -> bool:
    """Whether a `break` or `continue` in the else of a loop leaves the loop around it."""
    return any(isinstance(one, each) or holds(one, each) for one in body for each in (ast.Break, ast.Continue))


def returns_in_loop(statement: ast.stmt) -> bool:
    """Whether a return stands in it within a loop."""
    parts = [one for one in ast.iter_child_nodes(statement) if isinstance(one, ast.stmt)]
    if isinstance(statement, (ast.For, ast.While)):
        return any(isinstance(one, ast.Return) or holds(one, ast.Return) or returns_in_loop(one) for one in parts)
    return not isinstance(statement, ast.FunctionDef) and any(map(returns_in_loop, parts))


def returns_inside(statement: ast.stmt) -> bool:
    """Whether a return stands in it within a loop or a `with`."""
    within = any(isinstance(one, ast.With) and holds(one, ast.Return) for one in ast.walk(statement))
    return within or returns_in_loop(statement)


def holds(statement: ast.stmt, leave: type[ast.stmt]) -> bool:
    """Whether `leave` stands in it, outside of loops of its own."""
    parts = [
        one for one in ast.iter_child_nodes(statement) if isinstance(one, ast.stmt) and not isinstance(one, LOOPS)
    ]
    return any(isinstance(one, leave) or holds(one, leave) for one in parts)


def changes(node: ast.AST) -> set[str]:
    """The names of what changes in place: `x[i] = y` and `x.add_(y)`."""
    stored = (one for one in ast.walk(node) if isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store))
    methods = (one for one in ast.walk(node) if isinstance(one, ast.Attribute) and one.attr.endswith("_"))
    bases = [*(one.value for one in stored), *(one.value for one in methods)]
    return {one.id for one in bases if isinstance(one, ast.Name)}


def without_continue(node: ast.stmt) -> ast.stmt:
    """A statement at the end of an iteration that is unrolled, where `continue` does nothing."""
    if isinstance(node, ast.Continue):
        return ast.copy_location(ast.Pass(), node)
    if isinstance(node, ast.If) and holds(node, ast.Continue):
        arms = ([*arm[:-1], *map(without_continue, arm[-1:])] for arm in (node.body, node.orelse))
        return ast.copy_location(ast.If(node.test, *arms), node)
    return node


def ends(body: list[ast.stmt]) -> bool:
    """Whether control never falls out of the end."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.If):
        return ends(last.body) and ends(last.orelse)
    return isinstance(last, (ast.Return, ast.Raise, ast.Continue, ast.Break))


def peeled_while(node: ast.While, unused: str) -> ast.For:
    """The same loop with its first iteration apart: a loop that runs once, which `break` leaves."""
    stop = ast.If(ast.UnaryOp(ast.Not(), node.test), [*node.orelse, ast.Break()], [])
    mark_asked(node.test)
    return once(node, unused, [stop, *first_body(node), again(node, ast.While(node.test, node.body, node.orelse))])


def peeled_for(node: ast.For, items: str, unused: str) -> ast.For:
    """The same for a loop over what `items` holds."""
    several = ast.Name(items, ast.Load())
    empty = ast.Compare(ast.Call(ast.Name("len", ast.Load()), [several], []), [ast.Eq()], [ast.Constant(0)])
    first = ast.Assign([node.target], ast.Subscript(several, ast.Constant(0), ast.Load()))
    rest = ast.Subscript(several, ast.Slice(ast.Constant(1)), ast.Load())
    following = again(node, ast.For(node.target, rest, node.body, []))
    return once(node, unused, [ast.If(empty, [ast.Break()], []), first, *first_body(node), following])


def first_body(node: ast.While | ast.For) -> list[ast.stmt]:
    return [without_continue(one) for one in tails(node.body, ast.Continue)]


def again(node: ast.stmt, loop: ast.stmt) -> ast.stmt:
    loop.peeled = True  # type: ignore[attr-defined]
    return ast.copy_location(loop, node)


def once(node: ast.stmt, unused: str, body: list[ast.stmt]) -> ast.For:
    made = ast.For(ast.Name(unused, ast.Store()), ast.Tuple([ast.Constant(0)], ast.Load()), body, [])
    return ast.fix_missing_locations(ast.copy_location(made, node))


def comprehension(node: ast.ListComp | ast.GeneratorExp | ast.DictComp, target: str, prefix: str) -> list[ast.stmt]:
    """Statements that put its elements into the list or dictionary `target`; its own variables get `prefix`."""
    node = copy.deepcopy(node)
    own = {one.id for part in node.generators for one in ast.walk(part.target) if isinstance(one, ast.Name)}
    first = node.generators[0].iter
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and one.id in own and not inside(one, first):
            one.id = prefix + one.id
    body: list[ast.stmt] = [added(node, ast.Name(target, ast.Load()))]
    for part in reversed(node.generators):
        for test in reversed(part.ifs):
            body = [ast.If(test, body, [])]
        body = [ast.For(part.target, part.iter, body, [])]
    empty = ast.Dict([], []) if isinstance(node, ast.DictComp) else ast.List([], ast.Load())
    made = [ast.Assign([ast.Name(target, ast.Store())], empty), *body]
    return [ast.fix_missing_locations(ast.copy_location(one, node)) for one in made]


def added(node: ast.ListComp | ast.GeneratorExp | ast.DictComp, target: ast.expr) -> ast.stmt:
    if isinstance(node, ast.DictComp):
        return ast.Assign([ast.Subscript(target, node.key, ast.Store())], node.value)
    return ast.Expr(ast.Call(ast.Attribute(target, "append", ast.Load()), [node.elt], []))


def inside(node: ast.AST, tree: ast.AST) -> bool:
    return any(one is node for one in ast.walk(tree))


AT_ONCE = frozenset(
    {"list", "tuple", "dict", "sorted", "len", "sum", "max", "min", "any", "all", "set", "extend", "join"}
)  # what takes a view of a dictionary in one go
LAZY = frozenset({"zip", "enumerate", "reversed"})  # what passes it on


def mark(definition: ast.AST) -> None:
    """Note how expressions are used.

    `asked` where only the truth counts, `at_once` where nothing keeps the value, `either` where it may be a constant
    on some paths and a tensor on others.
    """
    for node in ast.walk(definition):
        for one in taking_either(node):
            one.either = True  # type: ignore[attr-defined]
        if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
            mark_asked(node.test)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            mark_asked(node.operand)
        elif isinstance(node, ast.comprehension):
            for one in node.ifs:
                mark_asked(one)
            mark_at_once(node.iter, "loop")
        elif isinstance(node, ast.For):
            mark_at_once(node.iter, "loop")
        elif isinstance(node, ast.Starred):
            mark_at_once(node.value, "call")
        elif isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
            called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            for one in node.args:
                if called == "bool":
                    mark_asked(one)
                elif called in AT_ONCE:
                    mark_at_once(one, "call")
        elif isinstance(node, ast.Compare) and isinstance(node.ops[-1], (ast.In, ast.NotIn)):
            mark_at_once(node.comparators[-1], "call")


def taking_either(node: ast.AST) -> list[ast.expr]:
    """The parts of a statement or expression that may be a constant on some paths and a tensor on others."""
    if isinstance(node, (ast.Return, ast.Assign, ast.AnnAssign, ast.Attribute, ast.Subscript)):
        return [node.value] if node.value is not None else []
    if isinstance(node, ast.AugAssign):
        return [node.target, node.value]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load):
        return node.elts
    if isinstance(node, ast.Dict):
        return node.values
    return [node.operand] if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not) else []


def mark_asked(node: ast.expr) -> None:
    node.asked = True  # type: ignore[attr-defined]
    if isinstance(node, ast.BoolOp):
        for one in node.values:
            mark_asked(one)


def mark_at_once(node: ast.expr, by: str) -> None:
    node.at_once = by  # type: ignore[attr-defined]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in LAZY:
        for one in node.args:
            mark_at_once(one, by)
