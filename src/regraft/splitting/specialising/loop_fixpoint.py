"""Loops whose length is not known: an iteration is followed until what the names hold settles."""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import replace

from regraft.splitting.program.residual import HostStep, Loop, Step, leaves_block
from regraft.splitting.program.residual_expressions import is_static_object, name
from regraft.splitting.program.statements import Assign, assigned_names
from regraft.splitting.program.values import (
    HostValue,
    LostValue,
    Names,
    StaticValue,
    TensorValue,
    convert_to_host,
)
from regraft.splitting.specialising.branches import decide, evaluate_truth, specialise_apart
from regraft.splitting.specialising.carried_names import carry_over_names, loses_value
from regraft.splitting.specialising.elements import (
    get_part_name,
    has_part_names,
    list_inner_first,
    rebuild_value,
)
from regraft.splitting.specialising.followed_code import FollowedLoop
from regraft.splitting.specialising.list_lengths_and_aliases import is_ragged
from regraft.splitting.specialising.object_unification import unify
from regraft.splitting.specialising.objects_made_in_forward import forget_dead_objects
from regraft.splitting.specialising.path_joins import is_variable, join_partial, merge_paths
from regraft.splitting.specialising.state import Specialisation

# most times that a loop's body is followed again, because sizes opened or for another reason
MAX_OPENINGS = 4


def list_assigned_names(state: Specialisation, node: ast.AST) -> set[str]:
    """Return the names, with the function's prefix, that the statements of a loop assign or change
    in place, and the names of the elements of tuples and records that these hold now."""
    keys = {
        state.variable_name(variable)
        for variable in assigned_names(node) | names_changed_in_place(node)
    }
    for key in sorted(keys):
        value = state.names.get(key)
        if value is not None:
            keys.update(get_part_name(key, place) for place in value.fields)
    return keys


def forget_constants(state: Specialisation, node: ast.AST, keys: set[str]) -> None:
    """Replace the values of these names in `state.names`, which a loop may change, by values that
    the host or regions compute. Constants are first assigned to their names by host steps; an
    object that cannot be written down becomes a LostValue. None stays known: a loop that changes it
    has its first iteration apart, and what may be None is an EitherValue."""
    for key in sorted(keys & state.names.keys()):
        value = state.names[key] = state.names[key].drop_constants()
        is_written = isinstance(value.code, ast.Name) or bool(value.fields)
        if isinstance(value, (StaticValue, HostValue)) and not is_written:
            if is_static_object(value):
                state.names[key] = LostValue(name(key))
                continue
            state.steps.append(HostStep(Assign(key, value.code)))
            if value.example is not None:
                state.bind_name(key, convert_to_host(value))
    for key in list_inner_first(state.names):
        if has_part_names(key, state.names[key], state.names):
            state.names[key] = rebuild_value(state, key, state.names[key])


def follow_to_fixpoint(
    state: Specialisation,
    node: ast.While | ast.For,
    header: tuple[str, ast.expr] | None,
    unassigned: Collection[str] = (),
) -> None:
    """Follow the body until the names at its end fit those at its start, and append the loop; raise
    Unsplittable for a loop that does not settle when its body was followed MAX_OPENINGS + 1 times.

    It is followed again where a tensor grew in it, whose size is open then, where it changes a
    tensor in place, which another name may hold since an iteration before, where it changes a name
    that it does not assign, and where the type of a name or the length of a list is lost.

    header: the variable and the values of a `for` loop; None for `while`. unassigned: the loop's
    variable, if nothing is assigned to it before.
    """
    forget_dead_objects(state)
    varying = list_assigned_names(state, node) - state.varying_names
    state.varying_names |= varying
    changes_before, may_repeat = state.in_place_changes, True
    entered, opened = state.not_entered, state.opened_lists
    for _ in range(MAX_OPENINGS + 1):
        separate_tensors(state, varying)
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
        carry_over_names(state, node, header, ends or [(steps, after)])
        has_opened, opened = state.opened_lists > opened, state.opened_lists
        if has_opened or loses_value(state, entry) or has_new_ragged_list(state, entry):
            continue
        if may_repeat and (state.in_place_changes > changes_before or state.not_entered > entered):
            may_repeat = False
            continue
        if have_sizes_settled(state, entry):
            break
    else:
        raise state.refuse(node, "the shapes of tensors in this loop do not settle")
    state.varying_names -= varying
    if not leaves_block(steps):
        drop_deleted_names(state, after)
    state.names.update(
        (key, replace(state.names[key], partial=True)) for key in unassigned if key in state.names
    )
    merge_exits(state, node, loop, ends, header is not None)
    state.steps.append(Loop(steps, header))


def separate_tensors(state: Specialisation, keys: set[str]) -> None:
    """Replace the example of each of the names `keys` that holds a tensor by a view of it, noted as
    one that may share its memory: the name may hold another tensor in a later iteration."""
    for key in keys & state.names.keys():
        value = state.names[key]
        if isinstance(value, TensorValue):
            state.names[key] = state.merge_aliases(value, [value])


def follow_iteration(
    state: Specialisation, node: ast.While | ast.For, loop: FollowedLoop, entry: Names
) -> tuple[list[Step], Names, list[tuple[list[Step], Names]]]:
    """Follow one iteration; return its steps, the names at its end, and all paths from it to
    the next one."""
    steps, after = specialise_apart(state, lambda: run_iteration(state, node, loop), state.names)
    ends = [*loop.continues, *([] if leaves_block(steps) else [(steps, after)])]
    unify(state, [([], entry), *ends])
    return steps, after, ends


def run_iteration(state: Specialisation, node: ast.While | ast.For, loop: FollowedLoop) -> None:
    """Specialise one iteration: the test of a `while` loop, and the body; steps are appended to
    `state.steps`, exits noted in `loop`."""
    outer_loops, state.loops = state.loops, [*state.loops, loop]
    state.loop_depth += 1
    try:
        if isinstance(node, ast.While):
            test = evaluate_truth(state, state.evaluate(node.test))
            if not (isinstance(test, StaticValue) and test.example):
                stop = test.with_code(ast.UnaryOp(ast.Not(), test.code))
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


def has_new_ragged_list(state: Specialisation, entry: Names) -> bool:
    """Return whether the length of a list in `entry`, the names at the start of the iteration, was
    known there and is not known now."""
    return any(
        is_ragged(state, state.names[key].example) > is_ragged(state, value.example)
        for key, value in entry.items()
    )


def have_sizes_settled(state: Specialisation, entry: Names) -> bool:
    """Return whether no tensor of `entry`, the names at the start of the iteration, has got another
    value in the second world (open sizes) since."""
    return all(
        state.names[key].twin is value.twin or isinstance(state.names[key], HostValue)
        for key, value in entry.items()
    )


def drop_deleted_names(state: Specialisation, after: Names) -> None:
    """Remove from `state.names` those of `state.deleted_names` that are missing in `after`, the
    names at the end of a body: a `del` in it has deleted them."""
    state.names = {
        key: value
        for key, value in state.names.items()
        if key in after or key not in state.deleted_names
    }


def merge_exits(
    state: Specialisation,
    node: ast.AST,
    loop: FollowedLoop,
    next_paths: list[tuple[list[Step], Names]],
    exhausted: bool,
) -> None:
    """Set `state.names` to the names after a loop of an unknown number of iterations, joined from
    all ways out; raise Unsplittable for a loop that would have to assign a variable where it runs
    out of elements.

    next_paths: the paths from an iteration to the next. exhausted: whether the loop also ends where
    no elements are left.
    """
    new_names: Names = {}
    for key in dict.fromkeys(key for _, names in next_paths for key in names):
        if key not in state.names and is_variable(state, key):
            assigning_paths = [(steps, names) for steps, names in next_paths if key in names]
            new_names.update(join_new_name(state, key, assigning_paths))
    ends = [(side, {**new_names, **names}) for side, names in loop.exits]
    no_steps: list[Step] = []
    if exhausted or not ends:
        ends.insert(0, (no_steps, {**state.names, **new_names}))
    merge_paths(state, ends, drop_leaving=False)
    assigned = list_assigned_names(state, node)  # the host holds the None of these already
    if any(not assigns_none(step, assigned) for step in no_steps):
        raise state.refuse(
            node, "a variable that this loop leaves as several things is not supported"
        )


def assigns_none(step: Step, keys: set[str]) -> bool:
    """Return whether a step of the host assigns None to one of the names `keys`."""
    return (
        isinstance(step, HostStep)
        and isinstance(step.statement, Assign)
        and step.statement.target in keys
        and isinstance(step.statement.value, ast.Constant)
        and step.statement.value.value is None
    )


def join_new_name(state: Specialisation, key: str, paths: list[tuple[list[Step], Names]]) -> Names:
    """Return {key: value} for a variable that only iterations assign, with its value after the
    loop, joined from the paths; {} where `join_partial` finds none.

    A tuple on a single path stays as it is.
    """
    values = [(steps, names[key]) for steps, names in paths]
    is_single_tuple = len(paths) == 1 and has_part_names(key, values[0][1], paths[0][1])
    if is_single_tuple and key not in state.deleted_names:
        return {key: values[0][1]}
    return join_partial(state, key, values)


def names_changed_in_place(node: ast.AST) -> set[str]:
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
