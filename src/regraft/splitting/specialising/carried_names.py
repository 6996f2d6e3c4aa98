"""The names that an iteration carries over to the next, with types that fit both."""

from __future__ import annotations

import ast
from dataclasses import replace

from regraft.splitting.errors import Unsplittable
from regraft.splitting.program.residual import Step
from regraft.splitting.program.residual_expressions import name
from regraft.splitting.program.statements import assigned_names
from regraft.splitting.program.type_patterns import fit_one_variable, open_differing_sizes
from regraft.splitting.program.value_kinds_and_parts import get_alternative
from regraft.splitting.program.values import (
    EitherValue,
    HostValue,
    LostValue,
    Names,
    StaticValue,
    TensorValue,
    Value,
)
from regraft.splitting.specialising.either_values import fits_either, is_equal_constant, mixes_none
from regraft.splitting.specialising.elements import has_part_names, rebuild_value
from regraft.splitting.specialising.list_lengths_and_aliases import note_ragged
from regraft.splitting.specialising.path_joins import open_elements, pack_tuple
from regraft.splitting.specialising.state import Specialisation


class NotSettled(Unsplittable):
    """Signals that a loop's first iteration finds something of another type than the ones that
    follow."""


def carry_over_names(
    state: Specialisation,
    node: ast.While | ast.For,
    header: tuple[str, ast.expr] | None,
    ends: list[tuple[list[Step], Names]],
) -> None:
    """Set `state.names` to what the names hold at the start of any iteration, given the names at
    the end of each path through one (`ends`); the loop's variable stays."""
    target = header[0] if header is not None else None
    for steps, end in ends:
        state.names = {
            key: value if key == target else carry_over(state, node, key, value, end.get(key))
            for key, value in state.names.items()
        }
        for key, value in state.names.items():
            if isinstance(value, EitherValue) and key in end and end[key].fields:
                state.names[key] = carry_over_tuple(key, value, steps, end)


def carry_over_tuple(key: str, value: EitherValue, steps: list[Step], end: Names) -> Value:
    """Return the value of a name that may be None, after a step at the end of the iteration in
    which the host assigns to the name the tuple that it holds element by element there; a LostValue
    for elements that are not plain."""
    is_assigned = pack_tuple(key, steps, end) is not end[key]
    return value if is_assigned else LostValue(name(key))


def carry_over(
    state: Specialisation, node: ast.AST, key: str, value: Value, end: Value | None
) -> Value:
    """Return what a name holds at the start of any iteration, from its value at the start and at
    the end of one. end: None where the iteration ends without the name.

    The value becomes a LostValue, or NotSettled is raised, where the type changes (`lose_value`).
    """
    if isinstance(value, LostValue):
        return carry_over_objects(value, end)
    if end is None:
        is_assigned = key in assigned_names(ast.Module([node], []))  # type: ignore[list-item]
        if not is_assigned and isinstance(value, StaticValue):
            return value
        return lose_value(state, node, key)
    if has_part_names(key, value, state.names) and list(end.fields) == list(value.fields):
        return rebuild_value(state, key, value)
    carried = carry_over_type(state, node, key, value, end)
    if carried is None and open_elements(state, [value, end]):
        carried = carry_over_type(state, node, key, value, end)
    if carried is not None:
        return carried
    widened = None
    if can_widen(value, end):
        widened = open_differing_sizes(get_alternative(value), get_alternative(end))
    if widened is not None:
        state.values_decide_sizes = True
        bound = state.bind_name(key, widened)
        assert isinstance(bound, TensorValue)
        return replace(value, alternative=bound) if isinstance(value, EitherValue) else bound
    if getattr(node, "peeled", False) and mixes_none([value, end]):
        return allow_none(state, key, value, end)
    return lose_value(state, node, key)


def carry_over_objects(value: LostValue, end: Value | None) -> LostValue:
    """Return the value of a name that nothing may read, or that holds one of several objects: these
    are not known any more where an iteration changes the name."""
    return value if end is value else value.drop_constants()


def carry_over_type(
    state: Specialisation, node: ast.AST, key: str, value: Value, end: Value
) -> Value | None:
    """Return what a name holds at the start of any iteration where an iteration keeps its type;
    None where it does not. Raise Unsplittable for an object that changes."""
    if isinstance(value, EitherValue):
        return value if fits_either(value, end) else None
    if type(value) is not type(end) or (value.example is None and end.example is not None):
        return None
    if isinstance(value, StaticValue) and not is_equal_constant(value.example, end.example):
        raise state.refuse(
            node, f"{key} is an object and changes in a loop whose length is not known"
        )
    if isinstance(value, TensorValue) and end.example is not value.example:
        state.alias_groups.append([value.example, end.example])
    if not fit_one_variable(value, end):
        return None
    note_ragged(state, end.example, [value.example])
    return end.drop_constants() if isinstance(end, HostValue) else value


def allow_none(state: Specialisation, key: str, value: Value, end: Value) -> Value:
    """Return the EitherValue of a name that holds None or something else at the start of an
    iteration, given its values at the start and at the end of one; a LostValue where what is not
    None has several types."""
    alternatives = [
        get_alternative(side)
        for side in (value, end)
        if not (isinstance(side, StaticValue) and side.example is None)
    ]
    first, last = alternatives[0], alternatives[-1]
    is_alike = type(first) is type(last) and not first.fields and not last.fields
    if not isinstance(first, (HostValue, TensorValue)) or not is_alike:
        return LostValue(name(key))
    if not fit_one_variable(first, last):
        return LostValue(name(key))
    note_ragged(state, first.example, [last.example])
    if isinstance(first, TensorValue):
        first = state.merge_aliases(first, alternatives)
    return EitherValue(first.drop_constants().with_name(key), None)


def can_widen(value: Value, end: Value) -> bool:
    """Return whether an iteration may change a value in nothing but sizes: both are tensors, of
    which the value may also be a constant on some paths, or both may be the same constant on some
    paths."""
    if isinstance(end, TensorValue):
        return isinstance(value, (TensorValue, EitherValue))
    return (
        isinstance(end, EitherValue)
        and isinstance(value, EitherValue)
        and is_equal_constant(end.instead, value.instead)
    )


def lose_value(state: Specialisation, node: ast.AST, key: str) -> Value:
    """Return a LostValue for the name `key`, whose type an iteration changes, if `node` is the rest
    of a loop whose first iteration was peeled off; raise NotSettled for any other loop."""
    if getattr(node, "peeled", False):
        return LostValue(name(key))
    raise state.refuse(
        node, f"{key} changes its type or shape from one iteration to the next", NotSettled
    )


def loses_value(state: Specialisation, entry: Names) -> bool:
    """Return whether a name of `entry`, the names at the start of the iteration, had a value there
    and is a LostValue now, or may be None now and could not be then, or was one of several objects
    that are not known now."""
    return any(
        bool(getattr(value, "objects", ())) and not getattr(state.names[key], "objects", ())
        for key, value in entry.items()
    ) or any(
        isinstance(state.names[key], kind) and not isinstance(value, kind)
        for key, value in entry.items()
        for kind in (LostValue, EitherValue)
    )
