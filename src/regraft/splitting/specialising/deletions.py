"""Deletions of names, attributes and elements."""

from __future__ import annotations

import ast

from regraft.splitting.program.values import HostValue, Value
from regraft.splitting.specialising.inplace import delete_slice
from regraft.splitting.specialising.object_methods import call_object_method
from regraft.splitting.specialising.objects_made_in_forward import find_special_method, is_stand_in
from regraft.splitting.specialising.state import Specialisation

REASON = "del of anything but a local name is not supported"


def execute_delete(state: Specialisation, node: ast.Delete) -> None:
    """Specialise `del` of local names, which are removed from `state.names`, and of items of
    objects that forward makes; raise Unsplittable for other targets."""
    for target in node.targets:
        if isinstance(target, (ast.Attribute, ast.Subscript)):
            delete_part(state, node, target, state.evaluate(target.value))
            continue
        if not isinstance(target, ast.Name) or state.frame.prefix + target.id not in state.names:
            raise state.refuse(node, REASON)
        del state.names[state.frame.prefix + target.id]
        state.deleted_names.add(state.frame.prefix + target.id)


def delete_part(
    state: Specialisation, node: ast.Delete, target: ast.Attribute | ast.Subscript, base: Value
) -> None:
    """Specialise `del base[index]` of an object that forward makes or of a list; raise Unsplittable
    for other targets."""
    if not isinstance(target, ast.Subscript):
        raise state.refuse(node, REASON)
    if is_stand_in(state, base.example):
        key = state.evaluate(target.slice)
        method = find_special_method(state, node, base.example, "__delitem__")
        call_object_method(state, node, method, [key], {})
    elif is_list_slice(target, base):
        delete_slice(state, target, base)
    elif is_list_element(target, base):
        pop = ast.Call(ast.Attribute(target.value, "pop", ast.Load()), [target.slice], [])
        state.evaluate(ast.fix_missing_locations(ast.copy_location(pop, node)))
    else:
        raise state.refuse(node, REASON)


def is_list_slice(target: ast.Subscript, base: Value) -> bool:
    """Return whether a target is a slice of a list of the host, `base`."""
    is_list = isinstance(base, HostValue) and type(base.example) is list
    return is_list and isinstance(target.slice, ast.Slice)


def is_list_element(target: ast.Subscript, base: Value) -> bool:
    """Return whether a target is one element of a list of the host, `base`."""
    is_list = isinstance(base, HostValue) and type(base.example) is list
    return is_list and not isinstance(target.slice, ast.Slice)
