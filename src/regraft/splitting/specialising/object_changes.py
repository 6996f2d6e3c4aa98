"""Changes of attributes and items: of objects and dictionaries that forward makes, and of modules
of the network."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import torch

from regraft.splitting.observing.assigned_attributes import (
    NewAttribute,
    is_plain,
    is_reassigned,
    remove_attribute,
)
from regraft.splitting.program.literals import literal
from regraft.splitting.program.statements import read_names
from regraft.splitting.program.value_kinds_and_parts import lists_in
from regraft.splitting.program.values import StaticValue, Value
from regraft.splitting.specialising.elements import get_element
from regraft.splitting.specialising.list_lengths_and_aliases import check_change
from regraft.splitting.specialising.objects_made_in_forward import (
    Place,
    get_item_keys,
    get_object_name,
    get_place_name,
    get_places,
    is_dict_stand_in,
    look_up_place,
)
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.values_stored_under_names import store_name


def store_place(state: Specialisation, node: ast.AST, key: str, value: Value) -> None:
    """Store a value under `key`, the name of an object, or of a place of an object or module, by
    steps, and note the change in `state.changed_names`; raise Unsplittable if a pending value reads
    the place."""
    old_names = list_places(state, key)
    if any(
        old_names & read_names(waiting.code) for values in state.pending for waiting in values or ()
    ):
        raise state.refuse(
            node, f"{key.partition('_')[2]} changes within an expression that reads it, too"
        )
    store_name(state, key, value)
    state.changed_names |= old_names | list_places(state, key)


def list_places(state: Specialisation, key: str) -> set[str]:
    """Return the names of an object, or of a place, and of all places in it."""
    return {name for name in state.names if name == key or name.startswith(f"{key}__")}


def set_place(
    state: Specialisation, node: ast.AST, stand_in: Any, place: Place, value: Value
) -> None:
    """Store to a place (attribute or item) of an object that forward makes; a new place is added to
    its places. Raises Unsplittable for a new key that is no constant, and the change of an object
    that belongs to the caller."""
    check_change(state, node, stand_in)
    places = get_places(state, node, stand_in)
    # 1 and True are one key
    place = next((candidate for candidate in places if candidate == place), place)
    if place not in places:
        if literal(place[1]) is None:
            raise state.refuse(node, f"a {type(place[1]).__name__} as a key is not supported")
        store_place(state, node, get_object_name(state, stand_in), state.static((*places, place)))
    store_place(state, node, get_place_name(state, stand_in, place), value)


def remove_place(state: Specialisation, node: ast.AST, stand_in: Any, place: Place) -> None:
    """Remove a place from an object; do nothing to its places if it has no such place. Raise
    Unsplittable for the change of an object that belongs to the caller."""
    check_change(state, node, stand_in)
    remaining = tuple(
        candidate for candidate in get_places(state, node, stand_in) if candidate != place
    )
    store_place(state, node, get_object_name(state, stand_in), state.static(remaining))


def mark_caller_containers(state: Specialisation, node: ast.AST, value: Value) -> None:
    """Note in `state.caller_containers` the lists and dictionaries of an argument, at any depth:
    they belong to the caller."""
    state.caller_containers.update(
        (id(inner_list), inner_list) for inner_list in lists_in(value.example)
    )
    if is_dict_stand_in(state, value.example):
        state.caller_containers[id(value.example)] = value.example
        for key in get_item_keys(state, node, value.example):
            mark_caller_containers(
                state, node, look_up_place(state, node, value.example, ("item", key)) or value
            )
    for place in value.fields:
        mark_caller_containers(state, node, get_element(state, value, place))


def check_not_private(state: Specialisation, node: ast.AST, attribute: str) -> None:
    """Raise Unsplittable for an attribute such as `__x`, whose name Python mangles by class."""
    if attribute.startswith("__") and not attribute.endswith("__"):
        raise state.refuse(
            node, f"{attribute}, whose name differs from class to class, is not supported"
        )


def set_attribute(
    state: Specialisation, node: ast.AST, stand_in: Any, attribute: str, value: Value
) -> None:
    """Assign to an attribute of an object; raise Unsplittable for properties and other descriptors,
    but for those of `__slots__`, and names that Python mangles."""
    check_not_private(state, node, attribute)
    class_attribute = inspect.getattr_static(type(stand_in), attribute, None)
    if hasattr(type(class_attribute), "__set__") and not inspect.ismemberdescriptor(
        class_attribute
    ):
        raise state.refuse(
            node,
            f"assigning to {attribute}, which is a property or another descriptor, is not"
            " supported",
        )
    set_place(state, node, stand_in, ("attribute", attribute), value)


def is_scratch(state: Specialisation, module: Any, attribute: Any) -> bool:
    """Return whether an attribute of a module is among `state.scratch`: calls assign it, so that it
    is followed as a variable."""
    return (
        isinstance(module, torch.nn.Module)
        and (state.paths.get(id(module)), attribute) in state.scratch
    )


def get_scratch_name(state: Specialisation, module: torch.nn.Module, attribute: str) -> str:
    """Return the name in `state.names` of an attribute of a module that calls assign, such as
    `s3_cache`; a module without a number gets the next one."""
    if id(module) not in state.scratch_numbers:
        state.scratch_numbers[id(module)] = state.next_number()
    return f"s{state.scratch_numbers[id(module)]}_{attribute}"


def read_scratch(
    state: Specialisation, node: ast.AST, module: torch.nn.Module, attribute: str
) -> Value:
    """Return the value of an attribute of a module that calls assign (`is_scratch`), from its name
    in `state.names`; raise Unsplittable where this call has not assigned the attribute on every
    path."""
    value = state.names.get(get_scratch_name(state, module, attribute))
    if value is None:
        raise state.refuse(
            node,
            f"{attribute} is read where this call has not assigned it on every path; what an"
            " earlier call left there is not known (state from call to call is not supported)",
        )
    return state.require_single_type(node, attribute, value)


def store_scratch(
    state: Specialisation, node: ast.AST, module: torch.nn.Module, attribute: str, value: Value
) -> None:
    """Specialise `module.attribute = value`: the value is stored under a name of its own in
    `state.names`, the module itself stays. Nothing is done where a layer, weight or buffer is
    assigned to its own attribute once more.

    Raises NewAttribute if the attribute is not yet among `state.scratch`; raises Unsplittable for
    layers, weights, buffers, attributes of the class, and modules that are no part of the network.
    """
    path = state.paths.get(id(module))
    if isinstance(value, StaticValue) and is_reassigned(module, attribute, value.example):
        return
    is_part = isinstance(value.example, (torch.nn.Module, torch.nn.Parameter))
    if path is None or is_part or not is_plain(module, attribute):
        raise state.refuse(
            node,
            f"assigning to {attribute} of a module is supported where it is a plain attribute"
            " of a part of the network, which its class does not have, and no layer, weight or"
            " buffer",
        )
    if (path, attribute) not in state.scratch:
        raise NewAttribute((path, attribute))
    store_place(state, node, get_scratch_name(state, module, attribute), value)


def undo_stores(state: Specialisation, stored_count: int) -> bool:
    """Delete from the modules the attributes that code assigned after the first `stored_count` of
    `state.stored_attributes`; return whether there were any. Raises NewAttribute for an attribute
    that is no variable of a call yet."""
    for attribute in state.stored_attributes[stored_count:]:
        if attribute not in state.scratch:
            raise NewAttribute(attribute)
        remove_attribute(state.model, attribute)
    return len(state.stored_attributes) > stored_count
