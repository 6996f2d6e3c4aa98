"""Lowering of loops: values that change between iterations are carried, with types found by a
fixpoint."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from regraft.splitting.emitting.single import number_arithmetic
from regraft.splitting.emitting.single.aliases import check_aliases, find_aliases
from regraft.splitting.emitting.single.block_exits import (
    EXIT_CODE,
    EXIT_CODES,
    ITERATED,
    RESULT,
    Exit,
    Outcome,
    select_names,
)
from regraft.splitting.emitting.single.expression_lowering import Expressions
from regraft.splitting.emitting.single.graph import Graph
from regraft.splitting.emitting.single.graph_values import (
    SAFE_BOUND,
    UNDEFINED,
    Const,
    Items,
    Maybe,
    Names,
    NestedList,
    Number,
    Rows,
    Sequence,
    Value,
    bound,
    count_occurrences,
    leaves,
)
from regraft.splitting.emitting.single.iteration import element_of_iteration, prepare_iterable
from regraft.splitting.emitting.single.liveness import Needs, exit_ways, live_at_head
from regraft.splitting.emitting.single.path_types import (
    Inexpressible,
    express,
    fill_template,
    name_of,
    unify,
)
from regraft.splitting.program.residual import Branch, HostStep, Loop, Step
from regraft.splitting.program.statements import Break

UNCHECKED_GROWTH = 2**20  # of a counter in an iteration; 2**42 iterations do not end in a lifetime
GOES_ON = "goes on"

Block = Callable[[list[Step], Names, Graph, Exit], Outcome]


def add_loop(
    block: Block, step: Loop, after: frozenset[str], needs: Needs, names: Names, graph: Graph
) -> Names:
    """Add the `Loop` node of a loop to `graph`; return the names needed after it, with its exit
    code.

    block: lowers steps. after: the names needed after the loop. needs: those needed after the ways
    to leave the block around it. The body is lowered again and again until the types of the values
    that change between iterations stay the same. Raises Inexpressible for a loop that ONNX cannot
    express, such as one of which every iteration raises.
    """
    test, body = rotate_loop(step)
    values = Expressions(graph, names).evaluate(step.header[1]) if step.header else UNDEFINED
    running = Items("tuple", (names.get(ITERATED, UNDEFINED), values))
    head_names = live_at_head(step, {**needs, "fall": after}) | after
    entry: Names = {**select_names(names, head_names), EXIT_CODE: Const(0)}
    if "return" in exit_ways(step.body):
        entry[RESULT] = UNDEFINED
    if isinstance(values, Items) and not values.values:
        return entry
    iterated, count = prepare_iterable(graph, values) if step.header else (UNDEFINED, "")
    aliases = find_aliases([entry])
    own_entry = {key: value for key, value in entry.items() if key not in aliases}
    leave = body_exit(test, needs, head_names, after, running)
    carried: Names = {}
    while True:
        inner, header = open_body(graph, carried, {**names, **entry, ITERATED: running})
        header.update((key, header[first]) for key, first in aliases.items())
        bind_target(step, header, inner, iterated)
        body_names = block(body, header, inner, leave)
        if body_names is None:
            raise Inexpressible("a loop whose every iteration raises")
        check_aliases_after_iteration(body_names, aliases)
        new_carried = carried_types(own_entry, body_names, carried)
        if new_carried == carried:
            break
        carried = new_carried
    names_after = close_loop(graph, inner, entry, body_names, carried, names, test, count)
    return {**names_after, **{key: names_after[first] for key, first in aliases.items()}}


def bind_target(step: Loop, header: Names, inner: Graph, iterated: Value) -> None:
    """Set the variable of a `for` loop in `header`, the names at the start of the body, to its
    element of the iteration; do nothing for `while`.

    inner: the graph of the body. iterated: the value that the loop runs over.
    """
    if step.header is not None:
        header[step.header[0]] = element_of_iteration(inner, iterated, inner.inputs[0][0])


def check_aliases_after_iteration(body_names: Names, aliases: dict[str, str]) -> None:
    """Raise Inexpressible where a name of `aliases` and the name it stands for no longer hold the
    same list after an iteration, and where two other names do: each would get its own copy."""
    for key, first in aliases.items():
        if body_names.get(key, UNDEFINED) is not body_names.get(first, UNDEFINED):
            raise Inexpressible(
                f"a list that is held twice ({first} and {key}), not so after an iteration,"
            )
    for key, first in find_aliases([body_names]).items():
        is_tuple = getattr(body_names[key], "kind", "") == "tuple"
        if not is_tuple and aliases.get(key, key) != aliases.get(first, first):
            raise Inexpressible(f"a list that is held twice after an iteration ({first} and {key})")


def body_exit(
    test: ast.expr | None,
    needs: Needs,
    head_names: frozenset[str],
    after: frozenset[str],
    running: Value,
) -> Exit:
    """Return the exit of a loop's body: the names it gives are those needed next, the exit code of
    the loop, and under GOES_ON whether the loop goes on.

    test: the condition for another iteration. head_names, after: the names needed at the start of
    an iteration, and after the loop. running: what `names[ITERATED]` has to be still; Inexpressible
    is raised where the list changed that the loop runs over.
    """

    def finish(way: str, names: Names, graph: Graph) -> Names:
        """Return the names that the body gives where a path leaves it by `way`, with the exit code
        and GOES_ON. Raises Inexpressible where the body changes the list that the loop runs
        over."""
        if names[ITERATED] is not running:
            raise Inexpressible("a list that changes while a loop runs over it")
        if way == "return":
            return {
                RESULT: names[RESULT],
                EXIT_CODE: Const(EXIT_CODES["return"]),
                GOES_ON: Const(False),
            }
        if way == "break":
            return {**select_names(names, after), EXIT_CODE: Const(0), GOES_ON: Const(False)}
        goes_on = evaluate_test(test, names, graph)
        return {**select_names(names, head_names), EXIT_CODE: Const(0), GOES_ON: goes_on}

    return Exit({**needs, "fall": head_names, "continue": head_names, "break": after}, finish)


def evaluate_test(test: ast.expr | None, names: Names, graph: Graph) -> Value:
    """Return the truth of a loop's test (a constant or a bool of run time), True for None; raise
    Inexpressible where the test changes a list."""
    names_before = dict(names)
    truth = Expressions(graph, names).evaluate_truth(test) if test is not None else Const(True)
    if any(names[key] is not value for key, value in names_before.items()):
        raise Inexpressible(
            f"the test {ast.unparse(test or ast.Constant(None))}, which changes a list,"
        )
    return truth


def rotate_loop(step: Loop) -> tuple[ast.expr | None, list[Step]]:
    """Return the test by which a loop goes on, and the steps of its body without this test.

    A `while` that begins with a test to `break` gives the opposite of this test; any other loop
    gives None and its whole body.
    """
    match step:
        case Loop(
            [Branch([(ast.expr() as test, [HostStep(Break())]), (None, other_steps)]), *following],
            None,
        ):
            return ast.UnaryOp(ast.Not(), test), [*other_steps, *following]
    return None, step.body


def open_body(graph: Graph, carried: Names, names: Names) -> tuple[Graph, Names]:
    """Return a new graph for a loop's body, and the names at its start, in which carried names have
    the graph's inputs as values.

    The inputs are the number of the iteration, a condition and the carried values. carried: the
    types of the names that change between iterations. names: the names at the loop, which stay.
    """
    inner = graph.new_child()
    inner.inputs = [(inner.new_name(), Number("", "int")), (inner.new_name(), Number("", "bool"))]
    inner.condition = inner.inputs[1][0]
    header = dict(names)
    for key, template in carried.items():
        unnamed_leaves = [leaf for leaf in leaves(template) if not leaf.name]
        input_names = [inner.new_name() for _ in unnamed_leaves]
        inner.inputs += zip(input_names, unnamed_leaves, strict=True)
        header[key] = fill_template(template, list(input_names))
    return inner, header


def carried_types(entry: Names, body_names: Names, carried: Names) -> Names:
    """Return the types of the names that change in an iteration; raise Inexpressible for a name
    without a type that fits all iterations.

    entry, body_names: the names before the loop and after an iteration. carried: the types so far,
    from which the new ones follow.
    """
    templates = {}
    for key, value in entry.items():
        end, earlier = body_names.get(key, UNDEFINED), [carried[key]] if key in carried else []
        try:
            template = unify([value, end, *earlier], UNDEFINED if earlier else value)
        except Inexpressible as problem:
            raise Inexpressible(f"{key}, which is {problem} in different iterations,") from problem
        if earlier or (template is not value and end is not UNDEFINED):
            templates[key] = widen(template)
    return templates


def widen(template: Value) -> Value:
    """Return the type with the bound SAFE_BOUND for its ints without a name: after many iterations
    they may be as large."""
    if isinstance(template, Number) and not template.name:
        return replace(template, bound=SAFE_BOUND)
    if isinstance(template, Items):
        return Items(template.kind, tuple(map(widen, template.values)), template.keys)
    if isinstance(template, Maybe):
        return Maybe(template.present, widen(template.value))
    return template


def limit_numbers(graph: Graph, value: Value, limit: int) -> Value:
    """Return the value with a check of each int whose bound is above `limit`: it fails at run time
    unless it is below SAFE_BOUND, so that a loop can carry it. Raises Inexpressible for a constant
    above `limit`."""
    if isinstance(value, Const) and type(value.value) is int and bound(value) > limit:
        raise Inexpressible(f"the whole number {value.value}, which a loop carries,")
    if isinstance(value, Number) and value.kind == "int" and bound(value) > limit:
        return number_arithmetic.limit_magnitude(graph, value, SAFE_BOUND)
    if isinstance(value, Maybe):
        return Maybe(value.present, limit_numbers(graph, value.value, limit))
    if isinstance(value, Items):
        return Items(
            value.kind,
            tuple(limit_numbers(graph, element, limit) for element in value.values),
            value.keys,
        )
    return value


def close_loop(
    graph: Graph,
    inner: Graph,
    entry: Names,
    body_names: Names,
    carried: Names,
    names: Names,
    test: ast.expr | None,
    count: str,
) -> Names:
    """Add the `Loop` node, unless nothing is carried, and return the names after it.

    inner: the graph of the body. entry, body_names: the names before the loop and after an
    iteration. carried: the types of those that change. names: all names at the loop. test: the test
    before the first iteration, None for no test. count: the name of the number of iterations; ""
    where the test alone decides. Raises Inexpressible for a list that two names hold or that
    changes while the loop runs over it, and for a loop that carries nothing but may fail.
    """
    check_aliases(entry, carried)
    check_aliases(body_names, carried)
    check_iterated(names, carried)
    initial_values, results = [], []
    for key, template in carried.items():
        start = limit_numbers(graph, entry[key], SAFE_BOUND)
        initial_values += express(graph, start, template)
        most = SAFE_BOUND + UNCHECKED_GROWTH
        end = limit_numbers(inner, body_names.get(key, UNDEFINED), most)
        results += express(inner, end, template)
    enters = evaluate_test(test, names, graph)
    inner.add_output(name_of(inner, body_names[GOES_ON]), Number("", "bool"))
    unnamed_leaves = [
        leaf for template in carried.values() for leaf in leaves(template) if not leaf.name
    ]
    for name, leaf in zip(results, unnamed_leaves, strict=True):
        inner.add_output(name, leaf)
    outputs: list[str] = []
    if unnamed_leaves:
        inputs = [count, name_of(graph, enters), *initial_values]
        outputs = graph.add_node("Loop", inputs, len(unnamed_leaves), body=inner)
    elif inner.may_fail:
        raise Inexpressible("a loop that does nothing but raise, perhaps,")
    graph.may_fail = graph.may_fail or inner.may_fail
    return {**entry, **{key: fill_template(template, outputs) for key, template in carried.items()}}


def check_iterated(names: Names, templates: Names) -> None:
    """Raise Inexpressible where a list that the loop around runs over (`names[ITERATED]`) changes.

    templates: the types of the names where paths meet; a list changes if its type is not the list
    itself.
    """
    for key, template in templates.items():
        value = names.get(key, UNDEFINED)
        is_changed = isinstance(value, (Items, Sequence, Rows)) and template is not value
        if isinstance(value, NestedList):  # a change makes a sequence of it
            is_changed = isinstance(template, Sequence)
        if is_changed and count_occurrences(names.get(ITERATED, UNDEFINED), value):
            raise Inexpressible(f"a list that changes while a loop runs over it ({key})")
