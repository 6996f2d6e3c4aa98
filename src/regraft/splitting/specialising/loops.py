"""Unroll loops whose elements are listed while specialising; hand others to loop_fixpoint.py."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from regraft.splitting.errors import Unrunnable, Unsplittable
from regraft.splitting.program.leaving_elses import without_else
from regraft.splitting.program.literals import literal
from regraft.splitting.program.loop_peeling import peel_for, peel_while, single_iteration_body
from regraft.splitting.program.residual import (
    Branch,
    HostStep,
    Loop,
    Step,
    TensorStep,
    all_steps,
    leaves_block,
)
from regraft.splitting.program.residual_expressions import name
from regraft.splitting.program.statements import Break, Continue, raise_message, read_names
from regraft.splitting.program.type_patterns import fit_one_variable
from regraft.splitting.program.value_kinds_and_parts import list_parts
from regraft.splitting.program.values import NO_TWIN, HostValue, StaticValue, TensorValue, Value
from regraft.splitting.specialising.assignment_targets import store
from regraft.splitting.specialising.carried_names import NotSettled
from regraft.splitting.specialising.elements import list_elements
from regraft.splitting.specialising.followed_code import FollowedLoop
from regraft.splitting.specialising.generators import (
    execute_for_generator,
    expand_counting_loop,
    find_generator,
)
from regraft.splitting.specialising.loop_fixpoint import (
    follow_to_fixpoint,
    forget_constants,
    list_assigned_names,
)
from regraft.splitting.specialising.mapped_elements import expand_mapped_loop
from regraft.splitting.specialising.objects_made_in_forward import read_sequence
from regraft.splitting.specialising.path_joins import merge_paths
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.values_stored_under_names import bind_fresh, store_name

MAX_UNROLLED = 4096  # most iterations of one loop that are unrolled


def execute_for(state: Specialisation, node: ast.For) -> None:
    """Unroll a `for` loop whose elements are listed while specialising; raise Unsplittable for more
    than MAX_UNROLLED of them. Leave any other loop to the host, and follow its iteration.

    An unrolled loop with an early exit becomes a loop that runs once. What follows a loop that
    returns leave (`attach_following`) runs at its end.
    """
    if follow_generator(state, node):
        return
    iterable = read_sequence(state, node, state.evaluate(node.iter))
    iterable = keep_rolled(state, node, iterable)
    elements = list_elements(state, node, iterable)
    if elements is None:
        follow_host_loop(state, node, iterable)
        return
    loop = FollowedLoop(True)
    exits = loop.exits
    body = single_iteration_body(node)
    if len(elements) > MAX_UNROLLED:
        raise state.refuse(node, f"more than {MAX_UNROLLED} iterations to unroll")
    elements = bind_elements_of_changed_names(state, node, elements)
    steps = follow_iterations(state, node, loop, elements, body)
    if isinstance(iterable.example, range):
        note_unrolled(state, node, steps)
    if not exits:
        state.steps.extend(steps)
        return
    falls_through = not leaves_block(steps)
    if falls_through:
        exits.append((steps, state.names))
    merge_paths(state, exits, drop_leaving=False)
    if falls_through:
        steps.append(HostStep(Break()))
    state.steps.append(Loop(steps))


def follow_iterations(
    state: Specialisation,
    node: ast.For,
    loop: FollowedLoop,
    elements: list[Value],
    body: list[ast.stmt],
) -> list[Step]:
    """Specialise the statements `body` of a loop for one element after the other, then its `else`
    and what follows it; return their steps, which are not appended."""
    outer_steps, state.steps = state.steps, []
    outer_loops, state.loops = state.loops, [*state.loops, loop]
    # rows of a tensor are taken one by one; of modules there may be many, and none of them
    # changes
    state.pending.append(
        [element for element in elements if not isinstance(element.example, torch.nn.Module)]
    )
    for element in elements:
        if not leaves_block(state.steps):
            store(state, node.target, element)
            state.execute_block(body)
    state.pending.pop()
    if not leaves_block(state.steps):
        state.execute_block([*node.orelse, *getattr(node, "following", ())])
    state.loops = outer_loops
    steps, state.steps = state.steps, outer_steps
    return steps


def bind_elements_of_changed_names(
    state: Specialisation, node: ast.For, elements: list[Value]
) -> list[Value]:
    """Return the elements of a loop; those whose expressions read names that the loop assigns, and
    so changes after it has evaluated its iterable, are bound to new names first."""
    assigned = list_assigned_names(state, node)
    return [
        (
            bind_fresh(state, element)
            if not isinstance(element, StaticValue) and read_names(element.code) & assigned
            else element
        )
        for element in elements
    ]


def follow_generator(state: Specialisation, node: ast.For) -> bool:
    """Specialise a loop over a generator, `zip` or `enumerate` of one, or `map` or `filter`, and
    return True; return False for any other loop."""
    generator = find_generator(state, node.iter)
    if generator is not None:
        execute_for_generator(state, node, generator)
        return True
    statements = expand_counting_loop(state, node) or expand_mapped_loop(state, node)
    state.execute_block(statements or [])
    return statements is not None


def keep_rolled(state: Specialisation, node: ast.For, iterable: Value) -> Value:
    """Return what a loop runs over; a known range as a value of the host where the loop is among
    `state.plan.rolled`, so that it is not unrolled."""
    numbers = iterable.example
    place = state.frame.path, node.lineno
    if place not in state.plan.rolled or not isinstance(numbers, range) or len(numbers) < 2:
        return iterable
    bounds: list[ast.expr] = [
        literal(bound) or ast.Constant(bound)
        for bound in (numbers.start, numbers.stop, numbers.step)
    ]
    return HostValue(numbers, ast.Call(name("range"), bounds, []))


def note_unrolled(state: Specialisation, node: ast.For, steps: list[Step]) -> None:
    """Note in `state.unrolled` that these steps, of an unrolled loop over a range, stand in the
    loop, if there is a decision among them."""
    body_steps = [*all_steps(steps)]
    places = {(step.path, step.line) for step in body_steps if isinstance(step, Branch)}
    if places:
        places |= {step.place for step in body_steps if isinstance(step, TensorStep)}
    for place in places:
        state.unrolled.setdefault(place, set()).add((state.frame.path, node.lineno))


def execute_while(state: Specialisation, node: ast.While) -> None:
    """Specialise a `while` loop, which stays a loop of the host."""

    def follow() -> None:
        """Specialise the loop as a loop of the host."""
        forget_assigned_constants(state, node)
        follow_to_fixpoint(state, node, None)

    follow_or_peel(state, node, follow, lambda: peel_while(node, state.fresh_name()))


def follow_or_peel(
    state: Specialisation,
    node: ast.While | ast.For,
    follow: Callable[[], None],
    peel: Callable[[], ast.stmt],
) -> None:
    """Call `follow`, which specialises a loop; if it raises NotSettled, because the first iteration
    leaves values of other types, undo its effects and specialise `peel()` instead, the statement
    with the first iteration apart. Raises Unsplittable if this was done for the loop already."""
    steps, names = list(state.steps), state.fork_names(state.names)
    varying, changed = set(state.varying_names), set(state.changed_names)
    entered = state.not_entered
    try:
        follow()
    except NotSettled as problem:
        if getattr(node, "peeled", False):
            raise Unsplittable(problem.path, problem.line, problem.reason) from problem
        state.steps[:], state.names = steps, names
        state.varying_names, state.changed_names, state.not_entered = varying, changed, entered
        state.execute(peel())


def follow_host_loop(state: Specialisation, node: ast.For, values: Value) -> None:
    """Specialise a loop over values of the host, whose number is not known, as a loop of the host,
    which is appended; an `else` becomes an `if` after it. Raise Unsplittable for values of
    different types or shapes, and a loop that no example enters, unless it is over an empty list,
    which an enclosing loop may fill."""
    if node.orelse:
        start, loop, else_statement = without_else(node, state.unused_name("exhausted"))
        state.execute(start)
        follow_host_loop(state, loop, values)
        state.execute(else_statement)
        return
    code = state.write_for_host(values)
    pairs = list_example_pairs(values)
    if not pairs and not isinstance(values.example, list):
        raise state.refuse(node, "no example enters this loop over values of the host", Unrunnable)
    if not pairs:  # an empty list, which an enclosing loop may fill
        append_loop_not_entered(state, node, code)
        return
    value_class = TensorValue if isinstance(pairs[0][0], torch.Tensor) else HostValue
    elements = [value_class(example, name(""), twin) for example, twin in pairs]
    if not all(fit_one_variable(elements[0], element) for element in elements):
        raise state.refuse(node, "a loop over values of different types or shapes is not supported")
    node, target = write_loop_variable(state, node, elements[0])
    key = state.variable_name(target.id)
    unassigned = () if key in state.names and not state.names[key].partial else (key,)

    def follow() -> None:
        """Bind the loop's variable to the first element, and specialise the loop as one of the
        host."""
        forget_assigned_constants(state, node)
        state.bind_name(key, elements[0].with_name(key))
        follow_to_fixpoint(state, node, (key, code), unassigned)

    def peel() -> ast.stmt:
        """Assign what the loop runs over to a new name, and return the loop with its first
        iteration apart."""
        list_name = state.fresh_name()
        values_as_list = convert_to_list(state, values.with_code(code), pairs)
        store_name(state, state.frame.prefix + list_name, values_as_list)
        return peel_for(node, list_name, state.fresh_name())

    follow_or_peel(state, node, follow, peel)


def list_example_pairs(values: Value) -> list[tuple[Any, Any]]:
    """Return, for each element that a loop over a value of the host visits, the pair of what it is
    in the example and in the second world.

    Where the example has no elements, those of the second world stand for both; where neither has
    any, the start of a range does, else the list is empty.
    """
    pairs = [(example, twin) for example, twin in list_parts(values)] or [
        (example, example) for example in values.second_example
    ]
    if not pairs and isinstance(values.example, range):
        return [(values.example.start, NO_TWIN)]
    return pairs


def append_loop_not_entered(state: Specialisation, node: ast.For, code: ast.expr) -> None:
    """Append a loop over a list that is empty in the example; its body raises RuntimeError. Count
    it in `state.not_entered`, and note the step that raises in `state.not_entered_errors`.

    code: the host's expression of the list.
    """
    state.not_entered += 1
    reason = f"{state.frame.path}:{node.lineno}: no example entered this loop"
    error_step = HostStep(raise_message("RuntimeError", reason))
    state.not_entered_errors.append(error_step)
    state.steps.append(Loop([error_step], (state.fresh_name(), code)))


def write_loop_variable(
    state: Specialisation, node: ast.For, element: Value
) -> tuple[ast.For, ast.Name]:
    """Return the loop with a single name as its target, and that name.

    A loop over one name stays as it is, unless the name has another type before the loop; any other
    gets a new name, from which the body assigns the source's target.
    """
    target = node.target
    if isinstance(target, ast.Name) and not holds_another_type(
        state, state.variable_name(target.id), element
    ):
        return node, target
    variable = ast.copy_location(ast.Name(state.fresh_name(), ast.Store()), node)
    unpacking = ast.Assign([node.target], ast.Name(variable.id, ast.Load()))
    body = [ast.fix_missing_locations(ast.copy_location(unpacking, node)), *node.body]
    return ast.copy_location(ast.For(variable, node.iter, body, []), node), variable


def holds_another_type(state: Specialisation, key: str, element: Value) -> bool:
    """Return whether a loop's variable has a value before the loop that the loop cannot assign
    anew: one of another type than the elements, or one that stands under another name."""
    value = state.names.get(key)
    if value is None:
        return False
    is_own_name = isinstance(value.code, ast.Name) and value.code.id == key
    return not (is_own_name and type(value) is type(element) and fit_one_variable(value, element))


def convert_to_list(state: Specialisation, values: Value, pairs: list[tuple[Any, Any]]) -> Value:
    """Return what a loop runs over as a value that has a length: a list, tuple, range or tensor as
    it is, anything else as `list(...)`, whose length is noted as unknown.

    pairs: the elements in both worlds.
    """
    if isinstance(values.example, (list, tuple, range, torch.Tensor)):
        return values
    examples, twins = ([pair[place] for pair in pairs] for place in (0, 1))
    state.ragged.update((id(inner_list), inner_list) for inner_list in (examples, twins))
    twin = NO_TWIN if values.twin is NO_TWIN else twins
    assert isinstance(values, (HostValue, TensorValue))
    return replace(
        values, code=ast.Call(name("list"), [values.code], []), example=examples, twin=twin
    )


def forget_assigned_constants(state: Specialisation, node: ast.While | ast.For) -> None:
    """Replace the constants of the names that a loop assigns by values of the host, since in a
    later iteration they may hold others (`forget_constants`)."""
    forget_constants(state, node, list_assigned_names(state, node))


def execute_break(state: Specialisation, node: ast.Break) -> None:
    """Append a `break`, which ends the path, and note its steps and names as an exit of the
    innermost loop."""
    state.steps.append(HostStep(Break()))
    state.loops[-1].exits.append((state.steps, state.names))


def execute_continue(state: Specialisation, node: ast.Continue) -> None:
    """End the path with `continue`, and note the path as a way to the next iteration.

    Raises Unsplittable for `continue` within `with` or `try` in a loop whose iterations are
    followed one by one.
    """
    if state.loops[-1].unrolled:
        raise state.refuse(
            node, "continue inside with or try, in a loop that is unrolled, is not supported"
        )
    state.steps.append(HostStep(Continue()))
    state.loops[-1].continues.append((state.steps, state.names))
