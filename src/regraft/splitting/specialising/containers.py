"""Evaluation of tuples, lists and dictionaries that the source writes out, and of slices."""

from __future__ import annotations

import ast
import copy

from regraft.splitting.program.residual_expressions import is_static_object, name
from regraft.splitting.program.use_marks import mark_uses
from regraft.splitting.program.value_kinds_and_parts import are_static, has_kind
from regraft.splitting.program.values import (
    NO_TWIN,
    HostValue,
    RecordValue,
    StaticValue,
    Value,
    convert_to_host,
)
from regraft.splitting.specialising.code_running import run_code, run_operation
from regraft.splitting.specialising.dictionaries import list_items
from regraft.splitting.specialising.elements import make_tuple
from regraft.splitting.specialising.host_displays import write_new_dictionary
from regraft.splitting.specialising.object_changes import set_place
from regraft.splitting.specialising.objects_made_in_forward import holds_stand_in, make_object
from regraft.splitting.specialising.record_fields import operate_on_records
from regraft.splitting.specialising.slice_widths import find_width
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.values_stored_under_names import bind_number, read_slice_bound


def evaluate_tuple(state: Specialisation, node: ast.Tuple) -> Value:
    """Return the value of a tuple display: static if all elements are known now, else a value of
    the host; tensors in it are first assigned to names."""
    if has_starred(node):
        return evaluate_starred(state, node)
    elements = [state.evaluate(element_node) for element_node in node.elts]
    code = write_sequence(state, node, elements)
    if any(holds_stand_in(state, element.example) for element in elements):
        return make_tuple(state, elements)
    if are_static(elements):
        return run_operation(state, node, code, elements)
    example = tuple(element.example for element in elements)
    worlds_agree = all(element.twin is NO_TWIN for element in elements)
    twin = NO_TWIN if worlds_agree else tuple(element.second_example for element in elements)
    return HostValue(example, code, twin)


def evaluate_list(state: Specialisation, node: ast.List) -> Value:
    """Return a list display as a value that the host makes; tensors in it are first assigned to
    names. Raises Unsplittable for modules, records and other objects as elements."""
    if has_starred(node):
        return evaluate_starred(state, node)
    elements = [state.evaluate(element_node) for element_node in node.elts]
    if has_kind(elements, RecordValue):
        return operate_on_records(state, node, elements)
    elements = [
        write_new_dictionary(state, element_node, element)
        for element_node, element in zip(node.elts, elements, strict=True)
    ]
    code = write_sequence(state, node, elements)
    if any(is_static_object(element) for element in elements):
        raise state.refuse(
            node,
            "a container of modules or other objects, made in forward, is not supported",
        )
    example = [element.example for element in elements]
    return HostValue(example, code, [element.second_example for element in elements])


def has_starred(node: ast.List | ast.Tuple) -> bool:
    """Return whether a display has an element such as `*rows`."""
    return any(isinstance(element, ast.Starred) for element in node.elts)


def write_sequence(
    state: Specialisation, node: ast.List | ast.Tuple, elements: list[Value]
) -> ast.expr:
    """Return the display `node` with the expressions of the values `elements`; tensors are first
    assigned to names."""
    display = copy.copy(node)
    display.elts = [state.write_for_host(element) for element in elements]
    return display


def evaluate_starred(state: Specialisation, node: ast.List | ast.Tuple) -> Value:
    """Return the value of a display with `*`, evaluated as a sum: `[*rows, x]` is `[*rows] + [x]`.

    An operand of known length is taken element by element.
    """
    display_type = type(node)
    parts: list[ast.expr] = []
    for element in node.elts:
        if isinstance(element, ast.Starred):
            constructor = name("list" if display_type is ast.List else "tuple")
            parts.append(ast.Call(constructor, [element.value], []))
        elif parts and isinstance(parts[-1], display_type):
            parts[-1].elts.append(element)
        else:
            parts.append(display_type([element], ast.Load()))
    total = parts[0]
    for part in parts[1:]:
        total = ast.BinOp(total, ast.Add(), part)
    mark_uses(total)
    return state.evaluate(ast.fix_missing_locations(ast.copy_location(total, node)))


def evaluate_slice(state: Specialisation, node: ast.Slice) -> Value:
    """Return the value of the slice in an index, of which only the expression is used: a HostValue
    if the host computes a bound, else a StaticValue. A bound that is a tensor of a single integer
    is read as a number; raise Unsplittable for other tensors and for records as bounds."""
    bound_nodes = {
        field: child for field, child in ast.iter_fields(node) if isinstance(child, ast.expr)
    }
    bounds = [state.evaluate(bound_node) for bound_node in bound_nodes.values()]
    if has_kind(bounds, RecordValue):
        return operate_on_records(state, node, bounds)
    bounds = [
        read_slice_bound(state, bound_node, bound)
        for bound_node, bound in zip(bound_nodes.values(), bounds, strict=True)
    ]
    bounds = [bind_number(state, bound) for bound in bounds]
    code = copy.copy(node)
    code.width = find_width(state, node, bounds[0] if node.lower else None)  # type: ignore[attr-defined]
    for field, bound in zip(bound_nodes, bounds, strict=True):
        setattr(code, field, bound.code)
    return (HostValue if has_kind(bounds, HostValue) else StaticValue)(None, code)


def make_dictionary(state: Specialisation, node: ast.Dict) -> Value:
    """Return the value of a dictionary display: an object that forward makes if all keys are known,
    else a value that the host makes. Raises Unsplittable for keys that are no constants, and `**`
    of what has no known keys or beside keys that are known at run time only."""
    keys = [
        state.static(None) if key_node is None else state.evaluate(key_node)
        for key_node in node.keys
    ]
    values = [state.evaluate(value_node) for value_node in node.values]
    if not are_static(keys):
        if None in node.keys:
            message = "`**` beside keys that are known at run time only is not supported"
            raise state.refuse(node, message)
        codes = [state.write_for_host(value) for value in values]
        return convert_to_host(run_code(state, node, ast.Dict([key.code for key in keys], codes)))
    dictionary = make_object(state, dict)
    for key_node, key, value in zip(node.keys, keys, values, strict=True):
        items = {key.example: value} if key_node is not None else list_items(state, node, value)
        for item_key, item_value in items.items():
            set_place(state, node, dictionary.example, ("item", item_key), item_value)
    return dictionary
