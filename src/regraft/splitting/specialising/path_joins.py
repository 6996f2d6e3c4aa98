"""Joins of the names and values of paths that meet: what a name holds after an `if`, or after a
loop."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import torch

from regraft.splitting.program.literals import literal
from regraft.splitting.program.possible_constants import constants_of_all
from regraft.splitting.program.residual import HostStep, Step, append_before_exit, leaves_block
from regraft.splitting.program.residual_expressions import is_static_literal, name
from regraft.splitting.program.statements import Assign
from regraft.splitting.program.type_patterns import (
    fit_one_variable,
    open_differing_sizes,
    open_list_sizes,
)
from regraft.splitting.program.value_kinds_and_parts import get_alternative, is_truth_of_operand
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
from regraft.splitting.specialising.either_values import is_equal_constant, mixes_none
from regraft.splitting.specialising.elements import (
    get_part_name,
    has_part_names,
    list_inner_first,
    rebuild_value,
)
from regraft.splitting.specialising.list_lengths_and_aliases import note_partly_aliased, note_ragged
from regraft.splitting.specialising.object_choices import join_objects
from regraft.splitting.specialising.object_unification import unify
from regraft.splitting.specialising.state import Specialisation


def name_prefixes(key: str) -> set[str]:
    """Return a name, and the names of which it may be an element: `a__0__1`, `a__0` and `a`."""
    parts = key.split("__")
    return {"__".join(parts[:count]) for count in range(1, len(parts) + 1)}


def assign_at_end(key: str, path_values: PathValues) -> None:
    """Append to each path's steps, before a last step that leaves, the host's assignment of its
    value to the name `key`."""
    for steps, value in path_values:
        append_before_exit(steps, HostStep(Assign(key, value.code)))


PathValues = list[tuple[list[Step], Value]]


def merge_paths(
    state: Specialisation, ends: list[tuple[list[Step], Names]], drop_leaving: bool = True
) -> None:
    """Set `state.names` to the names after paths that meet; where plain values differ, each path
    assigns its own to a variable of the host at its end. Without a path nothing changes.

    ends: the steps and names of each path, which may be changed. drop_leaving: whether paths whose
    steps leave are ignored.
    """
    ends = [(steps, names) for steps, names in ends if not (drop_leaving and leaves_block(steps))]
    if not ends:
        return
    unify(state, ends)
    joined: Names = {}
    state.joined_values = {}
    for key in dict.fromkeys(key for _, names in ends for key in names):
        joined.update(join_name(state, key, ends))
    state.names = joined
    rebuild_tuples(state, [names for _, names in ends])
    note_partly_aliased(state, [names for _, names in ends])


def join_name(state: Specialisation, key: str, ends: list[tuple[list[Step], Names]]) -> Names:
    """Return what a name holds after paths that meet, by the name, as `join_values` or
    `join_partial` join it; empty where the name is no variable of the source and a path lacks
    it."""
    path_values = [(steps, names[key]) for steps, names in ends if key in names]
    if mixes_none([value for _, value in path_values]):
        path_values = [
            (steps, pack_tuple(key, steps, names)) for steps, names in ends if key in names
        ]
    if len(path_values) < len(ends):
        return join_partial(state, key, path_values) if is_variable(state, key) else {}
    value = join_values(state, key, path_values)
    if any(path_value.partial for _, path_value in path_values):
        value = mark_partial(value)
    return {key: value}


def pack_tuple(key: str, steps: list[Step], names: Names) -> Value:
    """Return the tuple under the name `key`, of which numbers, texts and tensors are known one by
    one, as one value of the host, which the path assigns to the name at its end; any other value
    as it is."""
    value = names[key]
    if not isinstance(value, HostValue) or not value.fields:
        return value
    if not all(is_plain_part(names, code) for code in value.fields.values()):
        return value
    assign_at_end(key, [(steps, value)])
    return replace(value.drop_constants(), code=name(key))


def is_plain_part(names: Names, code: ast.expr) -> bool:
    """Return whether the expression of an element of a tuple is a constant, or the name of a
    number, a text or a tensor, with or without a unary operator as in `-1` or `not flag`."""
    if isinstance(code, ast.UnaryOp):
        code = code.operand
    if isinstance(code, ast.Constant):
        return True
    value = names.get(code.id) if isinstance(code, ast.Name) else None
    if isinstance(value, TensorValue):
        return isinstance(value.example, torch.Tensor)
    return isinstance(value, HostValue) and type(value.example) in (bool, int, float, str)


def is_variable(state: Specialisation, key: str) -> bool:
    """Return whether a name is a variable of the source, or an element of a tuple or record that
    one holds."""
    return bool(name_prefixes(key) & state.reserved_names)


def join_partial(
    state: Specialisation, key: str, path_values: list[tuple[list[Step], Value]]
) -> Names:
    """Return the joined value, by name, of a variable that some paths do not assign, marked as
    partial; empty where a path deletes the variable, or the value is an object without a literal.

    The host holds a constant. Reading the variable on the paths that lack a value raises, as in the
    original.
    """
    if name_prefixes(key) & state.deleted_names:
        return {}  # the host still holds it
    value = join_values(state, key, path_values)
    if isinstance(value, StaticValue):
        if literal(value.example) is None:
            return {}
        assign_at_end(key, [(steps, value) for steps, _ in path_values])
        value = HostValue(value.example, name(key))
    return {key: mark_partial(value)}


def mark_partial(value: Value) -> Value:
    """Return the value as one that only some of the paths here assign."""
    if isinstance(value, LostValue):
        value = value.drop_constants()
    return replace(value.with_constant(False), partial=True)


def rebuild_tuples(state: Specialisation, path_names: list[Names]) -> None:
    """Let tuples and records in `state.names` consist of the joined values of their elements, where
    they have the same class and places on all paths that assign them; the others stay LostValues.
    One with a partial element becomes partial."""
    for key in list_inner_first(state.names):
        values = [names[key] for names in path_names if key in names]
        are_split = all(
            has_part_names(key, names[key], names) for names in path_names if key in names
        )
        if are_split and len({(type(value.example), *value.fields) for value in values}) == 1:
            partial = any(
                state.names[get_part_name(key, place)].partial for place in values[0].fields
            )
            state.names[key] = replace(rebuild_value(state, key, values[0]), partial=partial)


def join_values(state: Specialisation, key: str, path_values: PathValues) -> Value:
    """Return the value that the name `key` holds after paths that meet; a LostValue if there is
    none, and for tuples and records, which `rebuild_tuples` puts together from their joined
    elements. Steps by which the host assigns the name are appended to the paths."""
    values = [value for _, value in path_values]
    first = values[0]
    kinds = {type(value) for value in values}
    if all(value.fields for value in values):
        return LostValue(name(key))  # its elements are joined
    if can_share_value(values):
        return first
    if (one_of_several := join_objects(state, key, path_values)) is not None:
        return one_of_several
    tensors = [value for value in values if isinstance(value, TensorValue)]
    if len(tensors) == len(values):
        return join_tensors(state, key, tensors)
    has_tensor = bool(kinds & {TensorValue, EitherValue})
    if (has_tensor and kinds <= {TensorValue, EitherValue, StaticValue}) or mixes_none(values):
        return join_either(state, key, path_values)
    if fit_host_variable(values) or open_elements(state, values):
        return join_in_host(state, key, path_values)
    return LostValue(name(key))


def open_elements(state: Specialisation, values: list[Value]) -> bool:
    """Open the sizes in which elements of lists differ (`open_list_sizes`), and count that in
    `state.opened_lists`; return whether one variable can hold each of the lists then."""
    if not open_list_sizes(values) or not fit_host_variable(values):
        return False
    state.opened_lists += 1
    state.values_decide_sizes = True
    return True


def can_share_value(values: list[Value]) -> bool:
    """Return whether all values are the same constant or object, or the same choice of objects, so
    that one can stand for all, or are records of one class."""
    first, kinds = values[0], {type(value) for value in values}
    if kinds == {LostValue}:
        return all(value is first for value in values)
    if kinds == {RecordValue}:
        return len({type(value.example) for value in values}) == 1
    return kinds == {StaticValue} and all(
        is_equal_constant(first.example, value.example) for value in values
    )


def find_longest(values: list[Value]) -> Value:
    """Return the value with the longest list or set; the first where there are none."""
    return max(
        values,
        key=lambda value: len(value.example) if isinstance(value.example, (list, set)) else 0,
    )


def fit_host_variable(values: list[Value]) -> bool:
    """Return whether one variable of the host can hold each of the values: they are the host's or
    constants, of one type."""
    longest = find_longest(values)
    return all(
        isinstance(value, HostValue) or is_static_literal(value) for value in values
    ) and all(fit_one_variable(longest, value) for value in values)


def join_in_host(state: Specialisation, key: str, path_values: PathValues) -> Value:
    """Return the HostValue of the variable `key`, to which each path assigns its plain value at its
    end, unless it holds the value already. Its example is the longest list among them, which is
    noted as of unknown length where their lengths differ."""
    values = [value for _, value in path_values]
    longest = find_longest(values)
    unbound = [
        (steps, value)
        for steps, value in path_values
        if not (isinstance(value.code, ast.Name) and value.code.id == key)
    ]
    assign_at_end(key, unbound)
    note_ragged(state, longest.example, [value.example for value in values])
    return HostValue(
        longest.example,
        name(key),
        longest.twin,
        among=constants_of_all(values),
        truth=any(map(is_truth_of_operand, values)),
    )


def join_tensors(state: Specialisation, key: str, values: list[TensorValue]) -> Value:
    """Return the tensor that a name holds after paths meet; dimensions in which the paths' sizes
    differ become open. Return a LostValue where the tensors differ in more than sizes. Binds the
    name `key` in `state` to the joined tensor, unless all paths hold the same tensor, and notes
    that the joined tensor may share memory with the tensor of each path."""
    joined = values[0]
    for value in values[1:]:
        if not fit_one_variable(joined, value):
            widened = open_differing_sizes(joined, value)
            if widened is None:
                return LostValue(name(key))
            joined, state.values_decide_sizes = widened, True
    if any(value.example is not values[0].example for value in values):
        joined = state.joined_values.setdefault(
            tuple(id(value.example) for value in values), state.merge_aliases(joined, values)
        )
    if joined is not values[0]:
        state.bind_name(key, joined)
    constant = all(value is values[0] for value in values) and values[0].constant
    return joined.with_name(key).with_constant(constant)


def join_either(state: Specialisation, key: str, path_values: PathValues) -> Value:
    """Return the EitherValue of a name that holds a tensor (or, beside None, a value of the host)
    on some paths, and one constant on the others, which these assign at their ends. Returns a
    LostValue where the constants differ or are no numbers, and where the other values have no type
    in common."""
    constant_paths, variable_paths = split_constant_paths(path_values)
    constants = [value.example for _, value in constant_paths] + [
        value.instead for _, value in path_values if isinstance(value, EitherValue)
    ]
    joined = join_values(state, key, variable_paths)
    if is_static_literal(joined):
        assign_at_end(key, variable_paths)
        joined = HostValue(joined.example, name(key))
    if not isinstance(joined, (HostValue, TensorValue)) or not are_equal_constants(constants):
        return LostValue(name(key))
    assign_at_end(key, constant_paths)
    if isinstance(joined, TensorValue):
        # an alias: a change of the tensor need not change this name
        joined = state.merge_aliases(joined, [value for _, value in variable_paths])
    return EitherValue(joined.with_constant(False), constants[0], partial=joined.partial)


def split_constant_paths(path_values: PathValues) -> tuple[PathValues, PathValues]:
    """Return the paths on which a name holds a constant, only None where there is None, and the
    others, without the constants that it may hold on them."""
    has_none = mixes_none([value for _, value in path_values])

    def is_constant_path(value: Value) -> bool:
        """Return whether a path holds a constant: None, or any constant where no path has None."""
        return isinstance(value, StaticValue) and (value.example is None or not has_none)

    constant_paths = [(steps, value) for steps, value in path_values if is_constant_path(value)]
    variable_paths = [
        (steps, get_alternative(value))
        for steps, value in path_values
        if not is_constant_path(value)
    ]
    return constant_paths, variable_paths


def are_equal_constants(constants: list[Any]) -> bool:
    """Return whether all are None, or all one number or truth value. There has to be at least
    one."""
    first = constants[0]
    is_plain = first is None or isinstance(first, (int, float))
    return all(is_equal_constant(first, constant) for constant in constants) and is_plain
