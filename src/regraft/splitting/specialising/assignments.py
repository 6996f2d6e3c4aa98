"""Assignments to names, attributes and the elements of tuples."""

from __future__ import annotations

import ast

import torch

from regraft.splitting.program.record_classes import FIXED
from regraft.splitting.program.value_tests import list_parts
from regraft.splitting.program.values import HostValue, RecordValue, StaticValue, Value
from regraft.splitting.specialising.elements import get_element, make_list, take_apart
from regraft.splitting.specialising.host_lists import has_definite_length
from regraft.splitting.specialising.inplace import store_element
from regraft.splitting.specialising.object_changes import set_attribute, store_scratch
from regraft.splitting.specialising.stand_ins import is_stand_in, record_error
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
    starred = [
        place
        for place, element_target in enumerate(target.elts)
        if isinstance(element_target, ast.Starred)
    ]
    if not can_unpack(state, value, len(target.elts), bool(starred)):
        raise state.refuse(target, "this cannot be unpacked")
    elements = split_elements(state, target, value)
    targets = list(target.elts)
    for place in starred:
        targets[place] = target.elts[place].value  # type: ignore[attr-defined]
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
