"""Loops: those over known elements are unrolled, others are followed until what the names hold
settles."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import torch

from regraft.splitting.errors import Unrunnable, Unsplittable
from regraft.splitting.program.codes import assign, kind_of, name
from regraft.splitting.program.normal import (
    changed_names,
    first_body,
    peel_for,
    peel_while,
    without_else,
)
from regraft.splitting.program.residual import HostStep, Loop, Step, leaves, reads, writes
from regraft.splitting.program.values import (
    SAME,
    Names,
    Value,
    literal,
    open_differing_sizes,
    same_type,
)
from regraft.splitting.specialising.assign import store
from regraft.splitting.specialising.branches import decide, evaluate_truth, specialise_apart
from regraft.splitting.specialising.either import fits_either, is_same_constant, without_constant
from regraft.splitting.specialising.elements import (
    get_part_name,
    has_part_names,
    list_elements,
    rebuild_value,
)
from regraft.splitting.specialising.joins import is_variable, join_partial, merge_paths
from regraft.splitting.specialising.lists import is_ragged, note_ragged
from regraft.splitting.specialising.meet import unify
from regraft.splitting.specialising.stand_ins import forget_dead_objects
from regraft.splitting.specialising.state import FollowedLoop, Specialisation
from regraft.splitting.specialising.variables import bind_fresh, store_name

MAX_OPENINGS = 4  # most times that sizes of tensors in one loop are opened


MAX_UNROLLED = 4096  # most iterations of one loop that are unrolled


class NotSettled(Unsplittable):
    """Signals that a loop's first iteration finds something of another type than the ones that
    follow."""


def execute_for(state: Specialisation, node: ast.For) -> None:
    iterable = state.evaluate(node.iter)
    elements = list_elements(state, node, iterable)
    if elements is None:
        follow_host_loop(state, node, iterable)
        return
    loop = FollowedLoop(True)
    exits = loop.exits
    body = first_body(node)
    if len(elements) > MAX_UNROLLED:
        raise state.refuse(node, f"more than {MAX_UNROLLED} iterations to unroll")
    # the loop changes these after it has evaluated its iterable
    assigned = list_assigned_names(state, node)
    elements = [
        (
            bind_fresh(state, element)
            if element.kind != "static" and reads(element.code) & assigned
            else element
        )
        for element in elements
    ]
    outer_steps, state.steps = state.steps, []
    outer_loops, state.loops = state.loops, [*state.loops, loop]
    # rows of a tensor are taken one by one; of modules there may be many, and none of them
    # changes
    state.pending.append(
        [element for element in elements if not isinstance(element.example, torch.nn.Module)]
    )
    for element in elements:
        if not leaves(state.steps):
            store(state, node.target, element)
            state.execute_block(body)
    state.pending.pop()
    if not leaves(state.steps):
        state.execute_block(node.orelse)
    state.loops = outer_loops
    steps, state.steps = state.steps, outer_steps
    if not exits:
        state.steps.extend(steps)
        return
    if not leaves(steps):
        exits.append((steps, state.names))
        merge_paths(state, exits, drop_leaving=False)
        steps.append(HostStep(ast.Break()))
    else:
        merge_paths(state, exits, drop_leaving=False)
    state.steps.append(Loop(steps))


def execute_while(state: Specialisation, node: ast.While) -> None:
    def follow() -> None:
        generalise(state, node)
        follow_to_fixpoint(state, node, None)

    follow_or_peel(state, node, follow, lambda: peel_while(node, state.fresh_name()))


def follow_or_peel(
    state: Specialisation,
    node: ast.While | ast.For,
    follow: Callable[[], None],
    peel: Callable[[], ast.stmt],
) -> None:
    """Follow a loop, with its first iteration apart if that one leaves values of other
    types."""
    steps, names = list(state.steps), state.fork_names(state.names)
    varying, changed, entered = (
        set(state.varying_names),
        set(state.changed_names),
        state.not_entered,
    )
    try:
        follow()
    except NotSettled as problem:
        if getattr(node, "peeled", False):
            raise Unsplittable(problem.path, problem.line, problem.reason) from problem
        state.steps[:], state.names = steps, names
        state.varying_names, state.changed_names, state.not_entered = varying, changed, entered
        state.execute(peel())


def follow_host_loop(state: Specialisation, node: ast.For, values: Value) -> None:
    """Follow a loop over values of the host, whose number is not known."""
    if node.orelse:
        start, loop, else_statement = without_else(node, state.unused_name("exhausted"))
        state.execute(start)
        follow_host_loop(state, loop, values)
        state.execute(else_statement)
        return
    code = state.bind_result(values) if values.kind == "tensor" else values.code
    pairs = [(example, twin) for example, twin in values.parts()] or [
        (example, example) for example in values.second_example
    ]
    if not pairs and isinstance(values.example, range):
        pairs = [(values.example.start, SAME)]
    if not pairs and not isinstance(values.example, list):
        raise state.refuse(node, "no example enters this loop over values of the host", Unrunnable)
    if not pairs:  # an empty list, which an enclosing loop may fill
        state.not_entered += 1
        error = (
            f"raise RuntimeError('{state.frame.path}:{node.lineno}: no example entered this loop')"
        )
        error_step = HostStep(ast.parse(error).body[0])
        state.not_entered_errors.append(error_step)
        state.steps.append(Loop([error_step], (ast.Name(state.fresh_name(), ast.Store()), code)))
        return
    kind = kind_of(pairs[0][0])
    elements = [Value(kind, example, name(""), twin) for example, twin in pairs]
    if not all(same_type(elements[0], element) for element in elements):
        raise state.refuse(node, "a loop over values of different types or shapes is not supported")
    target = node.target
    if not isinstance(target, ast.Name) or holds_another_type(
        state, state.frame.prefix + target.id, elements[0]
    ):
        target = ast.copy_location(ast.Name(state.fresh_name(), ast.Store()), node)
        unpacking = ast.Assign([node.target], ast.Name(target.id, ast.Load()))
        body = [ast.fix_missing_locations(ast.copy_location(unpacking, node)), *node.body]
        node = ast.copy_location(ast.For(target, node.iter, body, []), node)
    key = state.frame.prefix + target.id
    unassigned = () if key in state.names and not state.names[key].partial else (key,)

    def follow() -> None:
        generalise(state, node)
        state.bind_name(key, elements[0].with_name(key))
        follow_to_fixpoint(state, node, (ast.Name(key, ast.Store()), code), unassigned)

    def peel() -> ast.stmt:
        list_name = state.fresh_name()
        store_name(
            state,
            state.frame.prefix + list_name,
            convert_to_list(state, replace(values, code=code), pairs),
        )
        return peel_for(node, list_name, state.fresh_name())

    follow_or_peel(state, node, follow, peel)


def holds_another_type(state: Specialisation, key: str, element: Value) -> bool:
    """Return whether a loop's variable holds another type before the loop, and keeps it if no
    iteration runs."""
    value = state.names.get(key)
    if value is None:
        return False
    is_own_name = isinstance(value.code, ast.Name) and value.code.id == key
    return not (is_own_name and value.kind == element.kind and same_type(value, element))


def convert_to_list(state: Specialisation, values: Value, pairs: list[tuple[Any, Any]]) -> Value:
    """Return what a loop runs over as a value that has a length, of which nothing is known."""
    if isinstance(values.example, (list, tuple, range, torch.Tensor)):
        return values
    examples, twins = ([pair[place] for pair in pairs] for place in (0, 1))
    state.ragged.update((id(inner_list), inner_list) for inner_list in (examples, twins))
    twin = SAME if values.twin is SAME else twins
    return replace(
        values, code=ast.Call(name("list"), [values.code], []), example=examples, twin=twin
    )


def generalise(state: Specialisation, node: ast.While | ast.For) -> None:
    """Forget the constants of the names that the loop assigns, once the loop runs."""
    forget_constants(state, node, list_assigned_names(state, node))


def forget_constants(state: Specialisation, node: ast.AST, keys: set[str]) -> None:
    """Let the host or regions hold the values of these names, whose constants are not known any
    more."""
    for key in sorted(keys):
        if key not in state.names:
            continue
        value = state.names[key] = replace(state.names[key], constant=False, among=None)
        if (
            value.kind in ("static", "host")
            and not isinstance(value.code, ast.Name)
            and not value.fields
        ):
            if value.kind == "static" and literal(value.example) is None:
                state.names[key] = Value("lost", None, name(key))
                continue
            state.steps.append(HostStep(assign(key, value.code)))
            state.bind_name(key, replace(value, kind="host"))
    for key, value in state.names.items():
        if has_part_names(state, key, value, state.names):
            state.names[key] = rebuild_value(state, key, value)


def list_assigned_names(state: Specialisation, node: ast.AST) -> set[str]:
    """Return the names that a loop assigns, those of the elements of tuples among them."""
    keys = {state.frame.prefix + variable for variable in writes(node) | changed_names(node)}
    for key in sorted(keys):
        value = state.names.get(key)
        if value is not None:
            keys.update(get_part_name(key, place) for place in value.fields)
    return keys


def follow_to_fixpoint(
    state: Specialisation,
    node: ast.While | ast.For,
    header: tuple[ast.expr, ast.expr] | None,
    unassigned: Collection[str] = (),
) -> None:
    """Follow the body until the names at its end fit those at its start, and append the loop.

    It is followed again where a tensor grew in it, whose size is open then, and where it
    changes a tensor in place, which another name may hold since an iteration before.
    unassigned: the loop's variable, if nothing is assigned to it before.
    """
    forget_dead_objects(state)
    varying = list_assigned_names(state, node) - state.varying_names
    state.varying_names |= varying
    changes_before, may_repeat = state.in_place_changes, True
    entered = state.not_entered
    for _ in range(MAX_OPENINGS + 1):
        for key in varying & state.names.keys():
            if state.names[key].kind == "tensor":
                state.names[key] = state.merge_aliases(state.names[key], [state.names[key]])
        entry = dict(state.names)
        loop = FollowedLoop(False)
        (steps, after, ends), changed = state.track_changes(
            lambda: follow_iteration(state, node, loop, entry)  # noqa: B023
        )
        new_varying = changed - state.varying_names
        if new_varying & entry.keys():
            varying |= new_varying
            state.varying_names |= new_varying
            forget_constants(state, node, new_varying)
            continue
        target = {header[0].id} if header is not None and isinstance(header[0], ast.Name) else set()
        for _, end in ends or [(steps, after)]:
            state.names = {
                key: value if key in target else carry_over(state, node, key, value, end.get(key))
                for key, value in state.names.items()
            }
        if any(
            state.names[key].kind == "lost" and value.kind != "lost" for key, value in entry.items()
        ):
            continue
        if any(
            is_ragged(state, state.names[key].example) > is_ragged(state, value.example)
            for key, value in entry.items()
        ):
            continue
        if may_repeat and (state.in_place_changes > changes_before or state.not_entered > entered):
            may_repeat = False
            continue
        if all(
            state.names[key].twin is value.twin or state.names[key].kind == "host"
            for key, value in entry.items()
        ):
            break
    else:
        raise state.refuse(node, "the shapes of tensors in this loop do not settle")
    state.varying_names -= varying
    if not leaves(steps):  # a `del` in the body may have deleted names
        state.names = {
            key: value
            for key, value in state.names.items()
            if key in after or key not in state.deleted_names
        }
    state.names.update(
        (key, replace(state.names[key], partial=True)) for key in unassigned if key in state.names
    )
    merge_exits(state, node, loop, ends, header is not None)
    state.steps.append(Loop(steps, header))


def follow_iteration(
    state: Specialisation, node: ast.While | ast.For, loop: FollowedLoop, entry: Names
) -> tuple[list[Step], Names, list[tuple[list[Step], Names]]]:
    """Follow one iteration; return its steps, the names at its end, and all paths from it to
    the next one."""
    steps, after = specialise_apart(state, lambda: run_iteration(state, node, loop), state.names)
    ends = [*loop.continues, *([] if leaves(steps) else [(steps, after)])]
    unify(state, [([], entry), *ends])
    return steps, after, ends


def carry_over(
    state: Specialisation, node: ast.AST, key: str, value: Value, end: Value | None
) -> Value:
    """Return what a name holds at the start of any iteration, given its value at the start and
    the end of one."""
    if value.kind == "lost":
        return value
    if (
        has_part_names(state, key, value, state.names)
        and end is not None
        and list(end.fields) == list(value.fields)
    ):
        return rebuild_value(state, key, value)
    if (
        end is not None
        and end.kind == value.kind == "static"
        and not is_same_constant(value.example, end.example)
    ):
        raise state.refuse(
            node, f"{key} is an object and changes in a loop whose length is not known"
        )
    if end is not None and end.kind == value.kind == "tensor" and end.example is not value.example:
        state.alias_groups.append([value.example, end.example])
    if value.kind == "either" and end is not None and fits_either(state, value, end):
        return value
    if end is not None and end.kind == value.kind != "either" and same_type(value, end):
        note_ragged(state, end.example, [value.example])
        return replace(end, constant=False, among=None) if value.kind == "host" else value
    has_same_constant = (
        end is not None
        and end.kind == value.kind == "either"
        and is_same_constant(end.instead, value.instead)
    )
    can_widen = end is not None and (
        has_same_constant or (end.kind == "tensor" and value.kind in ("tensor", "either"))
    )
    widened = (
        open_differing_sizes(without_constant(value), without_constant(end))
        if end is not None and can_widen
        else None
    )
    if widened is not None:
        return replace(state.bind_name(key, widened), kind=value.kind)
    if end is not None or key in writes(ast.Module([node], [])) or value.kind != "static":  # type: ignore[list-item]
        if getattr(node, "peeled", False):
            return Value("lost", None, name(key))
        raise state.refuse(
            node, f"{key} changes its type or shape from one iteration to the next", NotSettled
        )
    return value


def run_iteration(state: Specialisation, node: ast.While | ast.For, loop: FollowedLoop) -> None:
    """Specialise one iteration: the test of a `while` loop, and the body."""
    outer_loops, state.loops = state.loops, [*state.loops, loop]
    state.loop_depth += 1
    try:
        if isinstance(node, ast.While):
            test = evaluate_truth(state, state.evaluate(node.test))
            if not (test.kind == "static" and test.example):
                stop = replace(test, code=ast.UnaryOp(ast.Not(), test.code), among=None)
                labels = ["the loop ends by its condition", "the loop goes on"]
                decide(
                    state,
                    node,
                    stop,
                    lambda: state.execute_block([*node.orelse, ast.Break()]),
                    lambda: None,
                    labels,
                )
        state.execute_block(node.body)
    finally:
        state.loops = outer_loops
        state.loop_depth -= 1


def merge_exits(
    state: Specialisation,
    node: ast.AST,
    loop: FollowedLoop,
    next_paths: list[tuple[list[Step], Names]],
    exhausted: bool,
) -> None:
    """Set the names after a loop of an unknown number of iterations.

    next_paths: the paths from an iteration to the next. exhausted: whether the loop also ends
    where no elements are left.
    """
    new_names: Names = {}
    for key in dict.fromkeys(key for _, names in next_paths for key in names):
        if key not in state.names and is_variable(state, key):
            assigning_paths = [(side, names) for side, names in next_paths if key in names]
            values = [(side, names[key]) for side, names in assigning_paths]
            is_single_tuple = len(assigning_paths) == 1 and has_part_names(
                state, key, values[0][1], assigning_paths[0][1]
            )
            keeps_parts = is_single_tuple and key not in state.deleted_names
            new_names.update(
                {key: values[0][1]} if keeps_parts else join_partial(state, key, values)
            )
    ends = [(side, {**new_names, **names}) for side, names in loop.exits]
    no_steps: list[Step] = []
    if exhausted or not ends:
        ends.insert(0, (no_steps, {**state.names, **new_names}))
    merge_paths(state, ends, drop_leaving=False)
    if no_steps:
        raise state.refuse(
            node, "a variable that this loop leaves as several things is not supported"
        )


def execute_break(state: Specialisation, node: ast.Break) -> None:
    state.steps.append(HostStep(ast.Break()))
    state.loops[-1].exits.append((state.steps, state.names))


def execute_continue(state: Specialisation, node: ast.Continue) -> None:
    if state.loops[-1].unrolled:
        raise state.refuse(
            node, "continue inside with or try, in a loop that is unrolled, is not supported"
        )
    state.steps.append(HostStep(ast.Continue()))
    state.loops[-1].continues.append((state.steps, state.names))
