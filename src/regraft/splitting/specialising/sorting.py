"""`sorted`, `list.sort`, `max` and `min` with a key: the key is followed for each element, and the
host orders positions by the keys."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from regraft.splitting.program.literals import literal
from regraft.splitting.program.residual_expressions import name
from regraft.splitting.program.value_kinds_and_parts import are_static
from regraft.splitting.program.values import HostValue, StaticValue, Value, convert_to_host
from regraft.splitting.specialising.code_running import run_code
from regraft.splitting.specialising.elements import list_elements, make_list
from regraft.splitting.specialising.inplace import store_slice
from regraft.splitting.specialising.list_lengths_and_aliases import (
    check_change,
    check_no_list_read,
    has_definite_length,
)
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.values_stored_under_names import (
    bind_fresh,
    index_container,
    store_name,
)


def call_with_key(
    state: Specialisation,
    node: ast.Call,
    function: Callable[..., Any],
    args: list[Value],
    keywords: dict[str, Value],
) -> Value:
    """Return the value of `sorted`, `max` or `min` of one sequence with a key; raise Unsplittable
    for other arguments and keywords, and keys that are neither numbers nor strings."""
    if len(args) != 1 or set(keywords) - ({"key", "reverse"} if function is sorted else {"key"}):
        raise state.refuse(node, f"{function.__name__}() with a key takes one sequence only")
    reverse = read_reverse(state, node, keywords)
    known_elements = list_elements(state, node, args[0])
    if known_elements is not None:
        known_elements = [read_constant(state, element) for element in known_elements]
        key_values = [call_key(state, node, keywords["key"], each) for each in known_elements]
        if are_static(key_values):
            keys = [value.example for value in key_values]
            return choose_known(state, node, function, known_elements, keys, reverse)
    sequence = bind_fresh(state, convert_to_list(state, node, args[0]))
    positions = order_positions(state, node, function, sequence, keywords["key"])
    if function is not sorted:
        element = index_container(state, node, ast.Subscript(sequence.code, positions, ast.Load()))
        return bind_fresh(state, element)
    return take_in_order(state, node, sequence, positions, reverse)


def read_constant(state: Specialisation, element: Value) -> Value:
    """Return an element that is written out as constants as one that is known; any other as it
    is."""
    parts = (ast.Constant, ast.Tuple, ast.Load)
    if all(isinstance(part, parts) for part in ast.walk(element.code)):
        return state.static(ast.literal_eval(element.code))
    return element


def read_reverse(state: Specialisation, node: ast.Call, keywords: dict[str, Value]) -> bool:
    """Return whether the keywords of a sort ask for the reverse order; raise Unsplittable where
    that is known only at run time."""
    reverse = keywords.get("reverse", state.static(False))
    if not isinstance(reverse, StaticValue):
        raise state.refuse(node, "a sort takes a constant reverse only")
    return bool(reverse.example)


def call_key(state: Specialisation, node: ast.Call, key: Value, element: Value) -> Value:
    """Return the key of one element, by which it is sorted: the element itself where the key is
    None."""
    if isinstance(key, StaticValue) and key.example is None:
        return element
    element_name = state.fresh_name()
    store_name(state, state.frame.prefix + element_name, element)
    code = write_key_call(state, key, ast.Name(element_name, ast.Load()))
    return state.evaluate(ast.fix_missing_locations(ast.copy_location(code, node)))


def write_key_call(state: Specialisation, key: Value, element: ast.expr) -> ast.expr:
    """Return the source expression of the key of an element; that of `operator.itemgetter(i)` is an
    index."""
    if isinstance(key.example, operator.itemgetter):
        places = key.example.__reduce__()[1]
        indices = [ast.Subscript(element, ast.Constant(place), ast.Load()) for place in places]
        return indices[0] if len(indices) == 1 else ast.Tuple([*indices], ast.Load())
    key_name = state.fresh_name()
    store_name(state, state.frame.prefix + key_name, key)
    return ast.Call(ast.Name(key_name, ast.Load()), [element], [])


def choose_known(
    state: Specialisation,
    node: ast.Call,
    function: Callable[..., Any],
    elements: list[Value],
    keys: list[Any],
    reverse: bool,
) -> Value:
    """Return the value of `sorted`, `max` or `min` of elements whose keys are all known."""
    if function is not sorted:
        place: int = function(range(len(keys)), key=keys.__getitem__)
        return elements[place]
    order = sorted(range(len(keys)), key=keys.__getitem__, reverse=reverse)
    ordered = [elements[place] for place in order]
    if are_static(ordered):
        return state.static([element.example for element in ordered])
    return make_list(state, node, ordered)


def convert_to_list(state: Specialisation, node: ast.Call, sequence: Value) -> Value:
    """Return a sequence or set as a list of the host; raise Unsplittable for anything else, such as
    a tensor."""
    if isinstance(sequence.example, list) and isinstance(sequence, HostValue):
        return sequence
    if not isinstance(sequence.example, (list, tuple, range, set)):
        raise state.refuse(node, "a sort with a key takes lists, tuples and sets only")
    code = literal(list(sequence.example)) if isinstance(sequence, StaticValue) else None
    if code is None:
        code = ast.Call(name("list"), [state.write_for_host(sequence)], [])
    return convert_to_host(run_code(state, node, code))


def order_positions(
    state: Specialisation,
    node: ast.Call,
    function: Callable[..., Any],
    sequence: Value,
    key: Value,
) -> ast.Call:
    """Return the host's expression of a call of `sorted`, `max` or `min` with the positions of a
    list and their keys."""
    element_name, list_name = state.fresh_name(), state.fresh_name()
    store_name(state, state.frame.prefix + list_name, sequence)
    element = ast.Name(element_name, ast.Load())
    is_none = isinstance(key, StaticValue) and key.example is None
    code = element if is_none else write_key_call(state, key, element)
    part = ast.comprehension(
        ast.Name(element_name, ast.Store()), ast.Name(list_name, ast.Load()), [], 0
    )
    comprehension = ast.copy_location(ast.ListComp(code, [part]), node)
    keys = bind_fresh(state, state.evaluate(ast.fix_missing_locations(comprehension)))
    check_keys(state, node, keys)
    positions = ast.Call(name("range"), [ast.Call(name("len"), [keys.code], [])], [])
    by_key = ast.keyword("key", ast.Attribute(keys.code, "__getitem__", ast.Load()))
    return ast.Call(name(function.__name__), [positions], [by_key])


def check_keys(state: Specialisation, node: ast.Call, keys: Value) -> None:
    """Raise Unsplittable for keys that are neither numbers nor strings nor tuples of these."""
    if any(literal(key) is None or key is None for key in keys.example):
        raise state.refuse(
            node, "a key of a sort is a number or a string here; of a tensor take .item()"
        )


def take_in_order(
    state: Specialisation,
    node: ast.Call,
    sequence: Value,
    positions: ast.Call,
    reverse: bool,
) -> Value:
    """Return the list of the elements at the positions that the host orders, reversed if
    `reverse`."""
    positions.keywords.append(ast.keyword("reverse", ast.Constant(reverse)))
    element = ast.Attribute(sequence.code, "__getitem__", ast.Load())
    mapped = ast.Call(name("map"), [element, positions], [])
    has_length = has_definite_length(state, sequence)
    value = convert_to_host(run_code(state, node, ast.Call(name("list"), [mapped], [])))
    bound = state.bind_in_host(value)
    if has_length:
        state.ragged.pop(id(bound.example), None)
    return bound


def sort_list(
    state: Specialisation, node: ast.Call, base: Value, keywords: dict[str, Value]
) -> Value:
    """Specialise `list.sort(key=...)`: the host stores the sorted elements into the list; return
    the constant None."""
    check_no_list_read(state, node)
    check_change(state, node, base.example)
    if set(keywords) - {"key", "reverse"}:
        raise state.refuse(node, "sort() takes key and reverse only")
    reverse = read_reverse(state, node, keywords)
    positions = order_positions(state, node, sorted, base, keywords["key"])
    ordered = take_in_order(state, node, base, positions, reverse)
    store_slice(state, node, base, ast.Slice(), ordered.code)
    return state.static(None)
