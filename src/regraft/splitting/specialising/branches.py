"""Decisions by values of the host: both sides are followed, and joined where they meet."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

import torch

from regraft.splitting.program.possible_constants import TRUTHS, narrow_value, possible_constants
from regraft.splitting.program.record_classes import is_namedtuple
from regraft.splitting.program.residual import Branch, Step
from regraft.splitting.program.residual_expressions import is_made_of_sizes, method_call
from regraft.splitting.program.statements import read_names
from regraft.splitting.program.values import (
    EitherValue,
    HostValue,
    LostValue,
    Names,
    RecordValue,
    StaticValue,
    TensorValue,
    Value,
)
from regraft.splitting.specialising.code_running import is_constant_tensor
from regraft.splitting.specialising.either_values import bind_alternative, find_tested_constant
from regraft.splitting.specialising.list_lengths_and_aliases import has_definite_length, is_ragged
from regraft.splitting.specialising.object_choices import DIFFERENT_SIDES, ObjectSides
from regraft.splitting.specialising.objects_made_in_forward import (
    is_stand_in,
    read_sequence,
    test_stand_in,
)
from regraft.splitting.specialising.path_joins import merge_paths
from regraft.splitting.specialising.state import Specialisation

# the conditions of the two sides of a branch, as a report shows them
LABELS = ("the condition holds", "the condition does not hold")


def specialise_apart(
    state: Specialisation,
    walk: Callable[[], None],
    names: Names,
    test: ast.expr | None = None,
    holds: bool = True,
) -> tuple[list[Step], Names]:
    """Run `walk`, which specialises statements, with empty steps and a copy of `names`; return its
    steps and the names after it. `state.steps` and `state.names` are afterwards as before.

    test: the expression that decides whether this path runs, by which values of names are narrowed;
    None for no test. holds: the outcome of the test on this path.
    """
    outer_state, state.steps, state.names = (state.steps, state.names), [], state.fork_names(names)
    try:
        if test is not None:
            narrow_names(state, test, holds)
        walk()
        return state.steps, state.names
    finally:
        state.steps, state.names = outer_state


def decide(
    state: Specialisation,
    node: ast.AST,
    test: Value,
    body: Callable[[], None],
    orelse: Callable[[], None],
    labels: Sequence[str] = LABELS,
) -> None:
    """Specialise both sides of a decision, join their names in `state.names`, and append the
    branch.

    test: the value that the host tests. body, orelse: specialise the two sides. labels: the
    condition on which each side is taken; "" for a side that no input has to show.
    """
    names = state.names
    by_size = not state.values_decide_sizes and is_made_of_sizes(
        test.code, state.size_names | state.derived_from_sizes
    )
    sides = [
        specialise_apart(state, walk, names, test.code, walk is body) for walk in (body, orelse)
    ]
    values_decide_sizes = state.values_decide_sizes
    merge_paths(state, sides)
    if by_size:
        state.values_decide_sizes = values_decide_sizes
    arms: list[tuple[ast.expr | None, list[Step]]] = [
        (test.code, sides[0][0]),
        (None, sides[1][0]),
    ]
    line = getattr(node, "lineno", 0)
    state.steps.append(Branch(arms, line, state.frame.path, list(labels), by_size=by_size))


def decide_value(
    state: Specialisation,
    node: ast.expr,
    test: Value,
    key: str,
    sides: list[Callable[[], None]],
    labels: Sequence[str] = LABELS,
) -> Value:
    """Follow both sides of a decision, the true one first, and return the value that both store
    under `key`; raise Unsplittable for values of different types or shapes."""
    decide(state, node, test, sides[0], sides[1], labels)
    value = state.names[key]
    if isinstance(value, LostValue):
        if isinstance(node, ast.IfExp) and value.objects:
            raise ObjectSides(node)
        raise state.refuse(node, DIFFERENT_SIDES)
    return value


def narrow_names(state: Specialisation, test: ast.expr, holds: bool) -> None:
    """Restrict the values of the names in a test, in `state.names`, to those that fit its outcome:
    `holds` is True on the path where the test is true, False on the other path.

    May add a step to `state.steps`, which has to be the list of steps of that path.
    """
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, holds = test.operand, not holds
    if isinstance(test, ast.Name) and (test.id, holds) in state.implied_tests:
        narrow_names(state, state.implied_tests[test.id, holds], holds)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) == holds:
        for operand in test.values:
            narrow_names(state, operand, holds)
    for key in read_names(test) & state.names.keys():
        state.names[key] = narrow_value(state.names[key], key, test, holds)
    tested = find_tested_constant(test)
    value = state.names.get(tested[0]) if tested is not None else None
    if tested is None or value is None or not isinstance(value, EitherValue):
        return
    if tested[1] == holds:
        state.names[tested[0]] = state.static(value.instead)
    else:
        state.names[tested[0]] = bind_alternative(state, value)


def truth_of_tensor(state: Specialisation, value: TensorValue) -> StaticValue | HostValue:
    """Return the truth of a tensor of one value, as `evaluate_truth` does; raise Unsplittable for
    one of several values."""
    if not isinstance(value.example, torch.Tensor) or value.example.numel() != 1:
        raise state.refuse(value.code, "the truth of several values is ambiguous")
    if is_constant_tensor(state, value):
        # weights and what is made of them stay what they are
        return state.static(bool(value.example))
    among = TRUTHS if value.example.dtype is torch.bool else None
    code = method_call(state.bind_result(value), "item")
    return HostValue(bool(value.example), code, bool(value.second_example), among=among)


def evaluate_truth(state: Specialisation, value: Value) -> StaticValue | HostValue:
    """Return what `if value` tests: True or False where it is known now, else a value that the host
    tests, read from a tensor of one value by `item()`. Raises Unsplittable for tensors of several
    values, and objects whose class defines its truth."""
    value = read_sequence(state, value.code, value)
    if is_stand_in(state, value.example):
        return state.static(test_stand_in(state, value.code, value.example))
    if isinstance(value, TensorValue):
        return truth_of_tensor(state, value)
    if isinstance(value, RecordValue):
        is_tuple = is_namedtuple(type(value.example))
        return state.static(
            bool(value.fields) if is_tuple else test_stand_in(state, value.code, value.example)
        )
    is_known_set = type(value.example) is set and not is_ragged(state, value.example)
    is_filled_tuple = isinstance(value, HostValue) and bool(value.fields)
    if has_definite_length(state, value) or is_known_set or is_filled_tuple:
        return state.static(bool(value.example))
    assert isinstance(value, (StaticValue, HostValue))
    truths = {bool(constant) for constant in possible_constants(value) or TRUTHS}
    return value if len(truths) > 1 else state.static(truths.pop())


def is_used_as_truth(node: ast.expr) -> bool:
    """Return whether only the truth of an expression counts, as `mark_uses` has noted."""
    return getattr(node, "truth_only", False)


def is_numeric_tensor(value: Value) -> bool:
    """Return whether a value that a region computes is anything but a tensor of truth values: a
    tensor of numbers, or several tensors."""
    return (
        isinstance(value, TensorValue) and getattr(value.example, "dtype", None) is not torch.bool
    )
