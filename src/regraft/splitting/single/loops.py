"""Loops: what changes from one iteration to the next is carried, with the type that it settles at."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from regraft.splitting.residual import Branch, HostStep, Loop, Step
from regraft.splitting.single import numbers
from regraft.splitting.single.exits import CODES, END, ITEMS, RESULT, Exit, Found, only
from regraft.splitting.single.expressions import Expressions
from regraft.splitting.single.graph import Graph
from regraft.splitting.single.join import Disagree, aliases, check_aliases, express, filled, name_of, unify
from regraft.splitting.single.liveness import Needs, head, ways
from regraft.splitting.single.values import (
    UNDEFINED,
    WIDE,
    Const,
    Items,
    Listed,
    Names,
    Number,
    Range,
    Sequence,
    Tensor,
    Value,
    bound,
    described,
    holders,
    leaves,
)

STEP = 2**20  # by which a counter may grow in an iteration unwatched: 2**42 of them do not end in a lifetime
KEEP = "goes on"

Block = Callable[[list[Step], Names, Graph, Exit], Found]


def iterate(block: Block, step: Loop, after: frozenset[str], needs: Needs, names: Names, graph: Graph) -> Names:
    """A `Loop`; what is needed after it, and how it was left."""
    test, body = rotated(step)
    values = Expressions(graph, names).value(step.header[1]) if step.header else UNDEFINED
    running = Items("tuple", (names.get(ITEMS, UNDEFINED), values))
    kept = head(step, {**needs, "fall": after}) | after
    entry: Names = {**only(names, kept), END: Const(0)}
    if "return" in ways(step.body):
        entry[RESULT] = UNDEFINED
    if isinstance(values, Items) and not values.values:
        return entry
    items, count = source(graph, values) if step.header else (UNDEFINED, "")
    second = aliases([entry])
    carried: Names = {}
    while True:
        inner, header = opened(graph, carried, {**names, **entry, ITEMS: running})
        header.update((key, header[first]) for key, first in second.items())
        if step.header is not None:
            assert isinstance(step.header[0], ast.Name)
            header[step.header[0].id] = item(inner, items, inner.inputs[0][0])
        found = block(body, header, inner, leaving(test, needs, kept, after, running))
        if found is None:
            raise Disagree("a loop whose every iteration raises")
        for key, first in second.items():
            if found.get(key, UNDEFINED) is not found.get(first, UNDEFINED):
                raise Disagree(f"a list that is held twice ({first} and {key}), not so after an iteration,")
        settled = carry({key: one for key, one in entry.items() if key not in second}, found, carried)
        if settled == carried:
            after_it = finished(graph, inner, entry, found, carried, names, test, count)
            return {**after_it, **{key: after_it[first] for key, first in second.items()}}
        carried = settled


def leaving(test: ast.expr | None, needs: Needs, kept: frozenset[str], after: frozenset[str], running: Value) -> Exit:
    """What the paths through a body end in: whether it goes on, how it was left, and what is needed then."""

    def finish(way: str, names: Names, graph: Graph) -> Names:
        if names[ITEMS] is not running:
            raise Disagree("a list that changes while a loop runs over it")
        if way == "return":
            return {RESULT: names[RESULT], END: Const(CODES["return"]), KEEP: Const(False)}
        if way == "break":
            return {**only(names, after), END: Const(0), KEEP: Const(False)}
        keep = tested(test, names, graph)
        return {**only(names, kept), END: Const(0), KEEP: keep}

    return Exit({**needs, "fall": kept, "continue": kept, "break": after}, finish)


def tested(test: ast.expr | None, names: Names, graph: Graph) -> Value:
    before = dict(names)
    made = Expressions(graph, names).test(test) if test is not None else Const(True)
    if any(names[key] is not one for key, one in before.items()):
        raise Disagree(f"the test {ast.unparse(test or ast.Constant(None))}, which changes a list,")
    return made


def rotated(step: Loop) -> tuple[ast.expr | None, list[Step]]:
    """The test by which a `while` goes on, if it is the first thing in its body, and what follows it."""
    first = step.body[0] if step.body else None
    if step.header is None and isinstance(first, Branch) and len(first.arms) == 2 and first.arms[1][0] is None:
        (test, stop), (_, go) = first.arms
        ends = len(stop) == 1 and isinstance(stop[0], HostStep) and isinstance(stop[0].statement, ast.Break)
        if test is not None and ends:
            return ast.UnaryOp(ast.Not(), test), [*go, *step.body[1:]]
    return None, step.body


def source(graph: Graph, values: Value) -> tuple[Value, str]:
    """What a `for` runs over, and how many iterations that is."""
    reader = Expressions(graph, {})
    if isinstance(values, Items) and values.kind in ("list", "tuple"):
        template = unify([Items("list", values.values), Items("list", ())])
        (name,) = express(graph, Items("list", values.values), template)
        values = filled(template, [name])
    if isinstance(values, Range):
        span = numbers.arithmetic(graph, ast.Sub(), values.stop, values.start)
        up = numbers.arithmetic(graph, ast.Add(), span, Const(values.step - (1 if values.step > 0 else -1)))
        turns = numbers.arithmetic(graph, ast.FloorDiv(), up, Const(values.step))
        return values, name_of(graph, numbers.chosen(graph, "max", turns, Const(0)))
    if isinstance(values, (Sequence, Listed, Tensor)) and not (isinstance(values, Tensor) and values.rank is None):
        return values, name_of(graph, reader.length(values))
    raise Disagree(f"a loop over {described(values)}")


def item(graph: Graph, values: Value, turn: str) -> Value:
    """What the loop's variable holds in iteration `turn`."""
    reader = Expressions(graph, {})
    if isinstance(values, Range):
        passed = numbers.arithmetic(graph, ast.Mult(), Number(turn, "int", 2**40), Const(values.step))
        return numbers.arithmetic(graph, ast.Add(), values.start, passed)
    if isinstance(values, (Listed, Tensor)):
        return reader.row(values, turn)
    return reader.element(values, Number(turn, "int"))


def opened(graph: Graph, carried: Names, names: Names) -> tuple[Graph, Names]:
    """A body, and the names at its start."""
    inner = graph.child()
    inner.inputs = [(inner.name(), Number("", "int")), (inner.name(), Number("", "bool"))]
    inner.condition = inner.inputs[1][0]
    header = dict(names)
    for key, template in carried.items():
        kinds = [one for one in leaves(template) if not one.name]
        made = [inner.name() for _ in kinds]
        inner.inputs += zip(made, kinds, strict=True)
        header[key] = filled(template, list(made))
    return inner, header


def carry(entry: Names, found: Names, carried: Names) -> Names:
    """The types of what changes, given those found so far."""
    made = {}
    for key, value in entry.items():
        try:
            values = [value, found.get(key, UNDEFINED), *([carried[key]] if key in carried else [])]
            template = unify(values, UNDEFINED if key in carried else value)
        except Disagree as problem:
            raise Disagree(f"{key}, which is {problem} in different iterations,") from problem
        if key in carried or (template is not value and found.get(key, UNDEFINED) is not UNDEFINED):
            made[key] = widened(template)
    return made


def widened(template: Value) -> Value:
    if isinstance(template, Number) and not template.name:
        return replace(template, bound=WIDE)
    if isinstance(template, Items):
        return Items(template.kind, tuple(map(widened, template.values)), template.keys)
    return template


def watched(graph: Graph, value: Value, most: int) -> Value:
    """Whole numbers that fit when they are carried on."""
    if isinstance(value, Const) and type(value.value) is int and bound(value) > most:
        raise Disagree(f"the whole number {value.value}, which a loop carries,")
    if isinstance(value, Number) and value.kind == "int" and bound(value) > most:
        return numbers.narrowed(graph, value, WIDE)
    if isinstance(value, Items):
        return Items(value.kind, tuple(watched(graph, one, most) for one in value.values), value.keys)
    return value


def finished(
    graph: Graph,
    inner: Graph,
    entry: Names,
    found: Names,
    carried: Names,
    names: Names,
    test: ast.expr | None,
    count: str,
) -> Names:
    """The node, and what holds after it."""
    check_aliases(entry, carried)
    check_aliases(found, carried)
    check_items(names, carried)
    start, made = [], []
    for key, template in carried.items():
        start += express(graph, watched(graph, entry[key], WIDE), template)
        made += express(inner, watched(inner, found.get(key, UNDEFINED), WIDE + STEP), template)
    first = tested(test, names, graph)
    inner.output(name_of(inner, found[KEEP]), Number("", "bool"))
    kinds = [one for template in carried.values() for one in leaves(template) if not one.name]
    for name, kind in zip(made, kinds, strict=True):
        inner.output(name, kind)
    outputs: list[str] = []
    if kinds:
        outputs = graph.several("Loop", [count, name_of(graph, first), *start], len(kinds), body=inner)
    elif inner.risky:
        raise Disagree("a loop that does nothing but raise, perhaps,")
    graph.risky = graph.risky or inner.risky
    return {**entry, **{key: filled(template, outputs) for key, template in carried.items()}}


def check_items(names: Names, templates: Names) -> None:
    """What a loop runs over must not change in it."""
    for key, template in templates.items():
        value = names.get(key, UNDEFINED)
        changes = isinstance(value, (Items, Sequence)) and template is not value
        if changes and holders(names.get(ITEMS, UNDEFINED), value):
            raise Disagree(f"a list that changes while a loop runs over it ({key})")
