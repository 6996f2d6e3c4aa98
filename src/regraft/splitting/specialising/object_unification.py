"""Unification of objects where paths meet: two objects, one made on each path, become one
object."""

from __future__ import annotations

import ast
import re

from regraft.splitting.program.residual import HostStep, Step, TensorStep, append_before_exit
from regraft.splitting.program.residual_expressions import is_static_literal
from regraft.splitting.program.statements import Assign, read_names, rename
from regraft.splitting.program.values import (
    LostValue,
    Names,
    StaticValue,
    TensorValue,
    Value,
    convert_to_host,
)
from regraft.splitting.specialising.objects_made_in_forward import (
    get_object_name,
    holds_stand_in,
    is_stand_in,
    select_live_names,
)
from regraft.splitting.specialising.state import Specialisation


def unify(state: Specialisation, ends: list[tuple[list[Step], Names]]) -> None:
    """Give each object that only one path made the names of the object of the first path that it
    corresponds to; the steps and names of all paths but the first are changed.

    ends: the steps and the names of each path. An object is a path's own if the other path lacks
    it. Names that refer to a path's own object refer to the first path's object afterwards: only
    the number differs.
    """
    first = select_live_names(state, ends[0][1])
    for steps, names in ends[1:]:
        live = select_live_names(state, names)
        if live.keys() != names.keys():
            names.clear()
            names.update(live)
        while (key := find_counterpart(state, first, names)) is not None:
            rename_object(state, steps, names, names[key].example, first[key].example)


def find_counterpart(state: Specialisation, first: Names, names: Names) -> str | None:
    """Return a name that refers on both paths, which end with the names `first` and `names`, to an
    object that forward makes, of one class, but to one that each path made itself; None where there
    is no such name, and where a value of `names`, such as a tuple, has an object of forward in
    it."""
    for key in first.keys() & names.keys():
        first_object, second_object = first[key].example, names[key].example
        are_stand_ins = is_stand_in(state, first_object) and is_stand_in(state, second_object)
        if (
            are_stand_ins
            and type(first_object) is type(second_object)
            and first_object is not second_object
        ):
            are_own = (
                get_object_name(state, first_object) not in names
                and get_object_name(state, second_object) not in first
            )
            if are_own and not has_nested_object(state, names):
                return key
    return None


def has_nested_object(state: Specialisation, names: Names) -> bool:
    """Return whether a value of a name, such as a tuple or a bound method, holds any object that
    forward makes; such an object by itself does not count."""
    examples = [value.example for value in names.values()]
    return any(
        holds_stand_in(state, example) and not is_stand_in(state, example) for example in examples
    )


def rename_object(
    state: Specialisation, steps: list[Step], names: Names, old: object, new: object
) -> None:
    """Change `names`, the names at the end of a path, so that an object of the path and its
    attributes have the names of another object, which differ in the object's number.

    The path's own steps keep the old names; assignments of the old names' values to the new names
    are added at the end of `steps`, before a statement that leaves. old, new: the stand-ins of the
    two objects.
    """
    number, new_number = get_object_name(state, old)[1:], get_object_name(state, new)[1:]
    new_names = {
        key: key[0] + new_number + key[1 + len(number) :]
        for key in names
        if re.match(rf"[od]{number}(_|$)", key)
    }
    values: Names = {}
    for key, value in names.items():
        new_name = new_names.get(key, key)
        if new_names.get(key) in state.varying_names and is_static_literal(value):
            values[new_name] = assign_before_exit(state, steps, new_name, convert_to_host(value))
        elif isinstance(value, StaticValue):
            values[new_name] = state.static(new) if value.example is old else value
        elif (
            key in new_names
            and isinstance(value.code, ast.Name)
            and not isinstance(value, LostValue)
        ):
            is_size = key in state.size_names
            values[new_name] = assign_before_exit(state, steps, new_name, value, is_size)
            open_dimensions = state.open_by_name.get(key, ())
            state.open_by_name.setdefault(new_name, set()).update(open_dimensions)
            if is_size:
                state.note_size(new_name)
        else:
            values[new_name] = rename_variables(value, new_names)
    names.clear()
    names.update(values)
    # but for the object's own name, whose value, the list of its places, has to be the same on all
    # paths
    state.changed_names |= {key for key in new_names.values() if "_" in key}


def assign_before_exit(
    state: Specialisation, steps: list[Step], key: str, value: Value, size: bool = False
) -> Value:
    """Add a step to a path's steps that assigns the value to the name `key`, before a last step
    that leaves: a step of a region for a tensor or a size, else one of the host. Return the value
    under that name, which counts as no constant.

    size: whether the value is a size that regions compute.
    """
    step_class = TensorStep if isinstance(value, TensorValue) or size else HostStep
    append_before_exit(steps, step_class(Assign(key, value.code), state.location))
    return value.with_name(key).with_constant(False)


def rename_variables(value: Value, new_names: dict[str, str]) -> Value:
    """Return the value with the variables in its expression renamed."""
    if not read_names(value.code) & new_names.keys():
        return value
    return value.with_code(rename(value.code, new_names))
