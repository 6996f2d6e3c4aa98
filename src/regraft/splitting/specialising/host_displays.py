"""Dictionaries, objects and records that forward made, written as expressions that build them in
the host."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from regraft.splitting.program.residual_expressions import is_static_object, name
from regraft.splitting.program.result_classes import RESERVED_NAMES, form_of
from regraft.splitting.program.values import (
    HostValue,
    LostValue,
    RecordValue,
    StaticValue,
    Value,
    convert_to_host,
)
from regraft.splitting.specialising.elements import get_element
from regraft.splitting.specialising.objects_made_in_forward import (
    get_item_keys,
    get_place_name,
    get_places,
    holds_stand_in,
    is_dict_stand_in,
    is_stand_in,
)
from regraft.splitting.specialising.state import Specialisation


def write_display(state: Specialisation, node: ast.AST, value: Value) -> Value:
    """Return the value with an expression that builds it in the host: dictionaries, objects and
    records of forward are written out, also within tuples; any other value as it is. Raises
    Unsplittable for what the host cannot make."""
    if isinstance(value, RecordValue):
        field_values = {key: get_element(state, value, key) for key in value.fields}
        return write_object(state, node, value, field_values)
    if not isinstance(value, (StaticValue, HostValue)):
        return value
    is_static = isinstance(value, StaticValue)
    if is_static and is_stand_in(state, value.example):
        if type(value.example) is dict:
            return write_dictionary(state, node, value.example)
        field_values = {
            key: state.names[get_place_name(state, value.example, (kind, key))]
            for kind, key in get_places(state, node, value.example)
        }
        return write_object(state, node, value, field_values)
    holds_objects = (
        is_static and type(value.example) is tuple and holds_stand_in(state, value.example)
    )
    if holds_objects or value.fields:
        return write_tuple(state, node, value)
    return value


def write_dictionary(state: Specialisation, node: ast.AST, stand_in: Any) -> Value:
    """Return a dictionary that forward makes as a value whose expression is a display, `{key:
    ...}`; raise Unsplittable for one with an element that the host cannot make."""
    keys = get_item_keys(state, node, stand_in)
    items = [
        write_display(state, node, state.names[get_place_name(state, stand_in, ("item", key))])
        for key in keys
    ]
    for item in items:
        if isinstance(item, LostValue) or is_static_object(item):
            raise state.refuse(node, "a dictionary holds something here that the host cannot make")
    code = ast.Dict([ast.Constant(key) for key in keys], write_codes(state, items))
    example = {key: item.example for key, item in zip(keys, items, strict=True)}
    twin = {key: item.second_example for key, item in zip(keys, items, strict=True)}
    return HostValue(example, code, twin)


def write_tuple(state: Specialisation, node: ast.AST, value: StaticValue | HostValue) -> HostValue:
    """Return a tuple whose expression is a display with each element written out for the host."""
    parts = [
        write_display(state, node, get_element(state, value, place))
        for place in range(len(value.example))
    ]
    return replace(convert_to_host(value), code=ast.Tuple(write_codes(state, parts), ast.Load()))


def write_codes(state: Specialisation, values: list[Value]) -> list[ast.expr]:
    """Return the host's expressions for the values; those that regions compute get names."""
    return [state.write_for_host(value) for value in values]


def check_result_class(
    state: Specialisation, node: ast.AST, value: Value, field_values: dict[Any, Value]
) -> None:
    """Raise Unsplittable for an object that forward returns whose class the host cannot make, or
    whose class's name something else has; else note the class in `state.results`."""
    object_class = type(value.example)
    original_class = getattr(object_class, "stands_for", None)
    if original_class is not None:
        raise state.refuse(
            node, f"returns a {original_class.__name__}, which the host cannot make; return a list"
        )
    has_identifiers = all(isinstance(key, str) and key.isidentifier() for key in field_values)
    # a mapping holds items, too
    is_made_of_fields = form_of(object_class) != "mapping" or isinstance(value, RecordValue)
    if (
        form_of(object_class) is None
        or not has_identifiers
        or not is_made_of_fields
        or not object_class.__name__.isidentifier()
    ):
        raise state.refuse(node, f"returns a {object_class.__name__}, which the host cannot make")
    if (
        object_class.__name__ in state.variables | RESERVED_NAMES
        or state.results.setdefault(object_class.__name__, object_class) is not object_class
    ):
        raise state.refuse(
            node, f"returns a {object_class.__name__}, while something else has this name, too"
        )


def write_object(
    state: Specialisation, node: ast.AST, value: Value, field_values: dict[Any, Value]
) -> Value:
    """Return an object that forward returns as a value whose expression calls its class with
    `field_values` as keywords; the class is noted in `state.results`, and the host gets one of this
    name. Raises Unsplittable for classes and fields that the host cannot make, and names that
    something else has."""
    object_class = type(value.example)
    check_result_class(state, node, value, field_values)
    keywords = []
    for key, field_value in field_values.items():
        part = write_display(state, node, state.require_single_type(node, key, field_value))
        if is_static_object(part):
            raise state.refuse(
                node, f"returns a {object_class.__name__} whose {key} the host cannot make"
            )
        keywords.append(ast.keyword(key, state.write_for_host(part)))
    return HostValue(value.example, ast.Call(name(object_class.__name__), [], keywords), value.twin)


def write_new_dictionary(state: Specialisation, node: ast.expr, value: Value) -> Value:
    """Return the value as one of the host, whose expression builds it, if `node` is a dictionary
    display or comprehension, which nothing else can hold; else the value as it is."""
    is_new = isinstance(node, (ast.Dict, ast.DictComp)) and is_dict_stand_in(state, value.example)
    return write_display(state, node, value) if is_new else value
