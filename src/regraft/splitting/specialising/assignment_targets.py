"""Assignments to names, attributes and the elements of tuples."""

from __future__ import annotations

import ast
from dataclasses import replace

import torch

from regraft.splitting.program.record_classes import FIXED
from regraft.splitting.program.residual import TensorStep
from regraft.splitting.program.residual_expressions import name
from regraft.splitting.program.statements import Assign
from regraft.splitting.program.type_patterns import open_dimensions
from regraft.splitting.program.value_kinds_and_parts import list_parts
from regraft.splitting.program.values import HostValue, RecordValue, StaticValue, TensorValue, Value
from regraft.splitting.specialising.code_running import run_code
from regraft.splitting.specialising.elements import get_element, make_list, take_apart
from regraft.splitting.specialising.guarded_sizes import append_check, is_tensor, write_size
from regraft.splitting.specialising.inplace import store_element
from regraft.splitting.specialising.list_lengths_and_aliases import has_definite_length
from regraft.splitting.specialising.object_changes import set_attribute, store_scratch
from regraft.splitting.specialising.objects_made_in_forward import is_stand_in, record_error
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.values_stored_under_names import save_from_stores, store_name


def store(state: Specialisation, target: ast.expr, value: Value) -> None:
    """Assign a value to a target of the source: a name, an element, several targets, or an
    attribute of a module or of an object that forward makes; raise Unsplittable for the attributes
    of other objects."""
    if isinstance(target, (ast.Tuple, ast.List)):
        unpack(state, target, value)
    elif isinstance(target, ast.Subscript):
        store_element(state, target, value)
    elif isinstance(target, ast.Name):
        key = state.variable_name(target.id)
        if target.id in state.frame.nonlocal_names:
            state.changed_names.add(key)
        store_name(state, key, value)
    else:
        assert isinstance(target, ast.Attribute)
        store_attribute(state, target, value)


def store_attribute(state: Specialisation, target: ast.Attribute, value: Value) -> None:
    """Assign a value to an attribute of a module or of an object that forward makes; raise
    Unsplittable for the attributes of other objects."""
    state.pending.append([value])
    base = state.evaluate(target.value)
    state.pending.pop()
    if isinstance(base.example, torch.nn.Module):
        store_scratch(state, target, base.example, target.attr, value)
    elif is_stand_in(state, base.example):
        set_attribute(state, target, base.example, target.attr, value)
    elif isinstance(base, RecordValue):
        raise record_error(state, target, type(base.example), FIXED)
    else:
        raise state.refuse(
            target, "assigning to an attribute is not supported in a network that is split"
        )


def unpack(state: Specialisation, target: ast.Tuple | ast.List, value: Value) -> None:
    """Assign the elements of a value to the elements of a tuple or list of targets; raise
    Unsplittable for a value for which `can_unpack` is False."""
    targets = list(target.elts)
    has_starred = any(isinstance(element_target, ast.Starred) for element_target in targets)
    if not has_starred and is_tensor(value) and 0 in open_dimensions(value):
        elements = take_rows(state, target, value)
    elif can_unpack(state, value, len(targets), has_starred):
        elements = split_elements(state, target, value)
    else:
        raise state.refuse(target, "this cannot be unpacked")
    for place, element_target in enumerate(target.elts):
        if isinstance(element_target, ast.Starred):
            targets[place] = element_target.value
            after = len(elements) - (len(targets) - place - 1)
            elements[place:after] = [make_list(state, target, elements[place:after])]
    state.pending.append(list(elements))
    for element_target, element in zip(targets, elements, strict=True):
        if state.pending[-1]:
            state.pending[-1].pop(0)
        store(state, element_target, element)
    state.pending.pop()


def can_unpack(
    state: Specialisation, value: Value, target_count: int, has_starred_target: bool
) -> bool:
    """Return whether a value can be unpacked into so many targets, one of which, with a star, may
    take several elements.

    False for anything but a tuple, list or tensor, for a value without elements, and, where a
    target has a star, for a value of the host whose elements are not known one by one.
    """
    if not isinstance(value.example, (tuple, list, torch.Tensor)):
        return False
    count = len(list_parts(value))
    if count == 0:
        return False
    if not has_starred_target:
        return count == target_count
    has_elements = (
        value.fields or has_definite_length(state, value) or isinstance(value.code, ast.List)
    )
    return count + 1 >= target_count and not (isinstance(value, HostValue) and not has_elements)


def take_rows(state: Specialisation, target: ast.Tuple | ast.List, value: Value) -> list[Value]:
    """Return the rows of a tensor whose number of rows is open, one for each element of `target`,
    after a step in which the host raises ValueError unless there are as many."""
    count = len(target.elts)
    assert isinstance(value, TensorValue)
    tensor = state.bind_result(value)
    state.fallible_operations += 1
    test = ast.Compare(write_size(tensor, 0), [ast.Eq()], [ast.Constant(count)])
    append_check(state, test, f"this tensor is unpacked to {count} rows")
    key = state.fresh_name()
    state.steps.append(TensorStep(Assign(key, tensor), state.location))
    example, twin = (with_rows(tensor, count) for tensor in (value.example, value.second_example))
    state.bind_name(key, replace(value, example=example, twin=twin, code=tensor))
    rows = [ast.Subscript(name(key), ast.Constant(place), ast.Load()) for place in range(count)]
    return [state.bind_if_tensor(run_code(state, target, row)) for row in rows]


def with_rows(tensor: torch.Tensor, count: int) -> torch.Tensor:
    """Return a copy of an example with `count` rows, its own as often as necessary."""
    if len(tensor) == 0:
        return tensor.new_zeros(count, *tensor.shape[1:])
    return tensor[torch.arange(count) % len(tensor)]


def split_elements(
    state: Specialisation, target: ast.Tuple | ast.List, value: Value
) -> list[Value]:
    """Return the elements of a value that is unpacked into `target`, as values of their own; a step
    unpacks a value whose elements are not known one by one into new names."""
    if isinstance(value, StaticValue):
        return [state.static(part) for part, _ in list_parts(value)]
    if not value.fields:
        return take_apart(state, value)
    # element by element, through names of their own where they might clash
    return [
        save_from_stores(state, target, get_element(state, value, place))
        for place in range(len(list_parts(value)))
    ]
