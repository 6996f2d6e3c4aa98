"""Objects and dictionaries that forward makes: each attribute and each item is a name of its own.

An object is known by a stand-in, an instance of its class that was never initialised. The
attributes and items of an object at a point of the program are a tuple of places, which the name of
the object holds; paths that meet have to agree on it.
"""

from __future__ import annotations

import ast
import inspect
import re
from abc import ABCMeta
from types import (
    BuiltinMethodType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any

from regraft.splitting.program.deque_class import Deque
from regraft.splitting.program.record_classes import Mutable, is_namedtuple
from regraft.splitting.program.values import Names, StaticValue, Value
from regraft.splitting.specialising.state import Specialisation

Place = tuple[str, Any]  # "attribute" or "item", and its name or key


# types whose instances have a `__self__`
BOUND_TYPES: Any = (
    MethodType,
    BuiltinMethodType,
    MethodWrapperType,
    super,
)


# types of what a class holds as a method
METHOD_TYPES = (
    FunctionType,
    classmethod,
    staticmethod,
    MethodDescriptorType,
    WrapperDescriptorType,
)


# methods by which a class may change how its attributes are accessed
ACCESS_METHODS = ("__getattribute__", "__setattr__", "__delattr__")


def is_stand_in(state: Specialisation, example: Any) -> bool:
    """Return whether `example` is the stand-in of an object that forward makes."""
    return id(example) in state.stand_ins


def is_dict_stand_in(state: Specialisation, example: Any) -> bool:
    """Return whether `example` is the stand-in of a dictionary."""
    return isinstance(example, dict) and is_stand_in(state, example)


def holds_stand_in(state: Specialisation, example: Any) -> bool:
    """Return whether `example` is the stand-in of an object that forward makes, or a list, tuple,
    dictionary or bound method that holds one."""
    if is_stand_in(state, example):
        return True
    if type(example) in (tuple, list):
        return any(holds_stand_in(state, element) for element in example)
    if type(example) is dict:
        return any(holds_stand_in(state, element) for element in example.values())
    return isinstance(example, BOUND_TYPES) and is_stand_in(state, example.__self__)


def holds_local_function(state: Specialisation, example: Any) -> bool:
    """Return whether `example` is a local function or the stand-in of an object that forward makes,
    or a list, tuple, dictionary or bound method that holds one."""
    if holds_stand_in(state, example):
        return True
    if isinstance(example, (tuple, list)):
        return any(holds_local_function(state, element) for element in example)
    if isinstance(example, dict):
        return any(holds_local_function(state, element) for element in example.values())
    return isinstance(example, FunctionType) and example in state.local_functions


def make_object(state: Specialisation, object_class: type) -> Value:
    """Return a new object without attributes and items, known by a new stand-in, which is noted in
    `state.stand_ins`; the object's name, such as `o1`, holds its places."""
    number = 1 + max((number for number, _ in state.stand_ins.values()), default=0)
    while number in state.taken_numbers:
        number += 1
    stand_in: Any = (dict if issubclass(object_class, dict) else object).__new__(object_class)
    state.stand_ins[id(stand_in)] = number, stand_in
    state.names[f"o{number}"] = state.static(())
    return state.static(stand_in)


def can_construct(object_class: type) -> bool:
    """Return whether the objects of `object_class` can be followed: it is an ordinary class, whose
    constructor is written in Python or inherited, and whose attributes are looked up as usual."""
    return (
        type(object_class) in (type, ABCMeta)
        and not inspect.isabstract(object_class)
        and object_class.__new__ in (object.__new__, dict.__new__)
        and all(
            getattr(object_class, method_name)
            in (getattr(object, method_name), getattr(dict, method_name))
            for method_name in ACCESS_METHODS
        )
        and not hasattr(object_class, "__getattr__")
        and isinstance(
            inspect.getattr_static(object_class, "__init__"),
            (FunctionType, WrapperDescriptorType),
        )
    )


def record_error(
    state: Specialisation, node: ast.AST, object_class: type, reason: str
) -> BaseException:
    """Return the error, for the caller to raise, for an object of a class that is no record:
    Mutable if it can be followed attribute by attribute, else Unsplittable with `reason`."""
    if (
        is_namedtuple(object_class)
        or object_class in state.mutable
        or not can_construct(object_class)
    ):
        return state.refuse(node, reason)
    return Mutable(object_class)


def find_special_method(
    state: Specialisation, node: ast.AST, stand_in: Any, method_name: str
) -> Any:
    """Return a method such as `__getitem__`, which is looked up in the class; raise Unsplittable
    for an object without it."""
    if not isinstance(inspect.getattr_static(type(stand_in), method_name, None), METHOD_TYPES):
        raise state.refuse(node, f"a {type(stand_in).__name__} has no method {method_name}")
    return getattr(stand_in, method_name)


def get_object_name(state: Specialisation, stand_in: Any) -> str:
    """Return the key in `state.names`, such as `o1`, of the tuple of an object's places; the object
    has to be a stand-in."""
    return f"o{state.stand_ins[id(stand_in)][0]}"


def get_places(state: Specialisation, node: ast.AST, stand_in: Any) -> tuple[Place, ...]:
    """Return the places of an object that forward makes: its attributes and items, as ("attribute"
    or "item", name or key). Raises Unsplittable where the paths that lead here disagree on them."""
    value = state.names.get(get_object_name(state, stand_in))
    if value is None or not isinstance(value, StaticValue):
        class_name = type(stand_in).__name__
        raise state.refuse(
            node, f"what this {class_name} holds differs between the paths that lead here"
        )
    return value.example  # type: ignore[no-any-return]


def get_item_keys(state: Specialisation, node: ast.AST, stand_in: Any) -> list[Any]:
    """Return the keys of the items of an object."""
    return [key for kind, key in get_places(state, node, stand_in) if kind == "item"]


def get_place_name(state: Specialisation, stand_in: Any, place: Place) -> str:
    """Return the name for a place of an object: `o1_x` for the attribute `x`, `d1_x` for the item
    "x", `d1_03` for the item 3; for another key the hexadecimal digits of its text."""
    kind, key = place
    number = state.stand_ins[id(stand_in)][0]
    is_identifier = (
        isinstance(key, str)
        and key.isidentifier()
        and key.isascii()
        and "__" not in key
        and key[-1] != "_"
    )
    is_index = type(key) is int and key >= 0
    suffix = key if is_identifier else f"0{key}" if is_index else "0x" + repr(key).encode().hex()
    return f"{'o' if kind == 'attribute' else 'd'}{number}_{suffix}"


def look_up_place(
    state: Specialisation, node: ast.AST, stand_in: Any, place: Place
) -> Value | None:
    """Return the value that the program has stored in an attribute or item of an object that
    forward makes; None if it has stored none there.

    stand_in: the stand-in of the object. Raises Unsplittable where the paths that lead here
    disagree on the object's places or on the type of the value.
    """
    matches = [candidate for candidate in get_places(state, node, stand_in) if candidate == place]
    if not matches:
        return None
    return state.require_single_type(
        node, place[1], state.names[get_place_name(state, stand_in, matches[0])]
    )


def read_sequence(state: Specialisation, node: ast.AST, value: Value) -> Value:
    """Return the list that holds the items of a deque that forward makes; any other value as it
    is."""
    if not is_stand_in(state, value.example) or type(value.example) is not Deque:
        return value
    items = look_up_place(state, node, value.example, ("attribute", "items"))
    return items if items is not None else value


def test_stand_in(state: Specialisation, node: ast.AST, stand_in: Any) -> bool:
    """Return the truth of an object: that of a dictionary by its number of keys, True for any
    other; raise Unsplittable for a class that defines it itself."""
    if is_dict_stand_in(state, stand_in) and type(stand_in).__len__ is dict.__len__:
        return bool(get_item_keys(state, node, stand_in))
    if hasattr(type(stand_in), "__bool__") or hasattr(type(stand_in), "__len__"):
        raise state.refuse(node, f"the truth of a {type(stand_in).__name__} is not supported")
    return True


def select_live_names(state: Specialisation, names: Names) -> Names:
    """Return the names without those of objects that nothing refers to any more: no other name, no
    pending value, and no constructor that runs."""
    roots: list[Any] = [value.example for value in state.under_construction]
    roots += [value.example for values in state.pending for value in values or ()]
    numbers = {number for number, _ in state.stand_ins.values()}
    examples_by_number: dict[int, list[Any]] = {}
    for key, value in names.items():
        match = re.match(r"[od](\d+)(_|$)", key)
        if match and int(match[1]) in numbers:
            examples_by_number.setdefault(int(match[1]), []).append(value.example)
        else:
            roots.append(value.example)
    live_numbers = find_live_numbers(state, roots, examples_by_number)
    dead_prefixes = tuple(
        f"{kind}{number}_" for number in examples_by_number.keys() - live_numbers for kind in "od"
    )
    return {
        key: value
        for key, value in names.items()
        if not (dead_prefixes and f"{key}_".startswith(dead_prefixes))
    }


def find_live_numbers(
    state: Specialisation, roots: list[Any], examples_by_number: dict[int, list[Any]]
) -> set[int]:
    """Return the numbers of the objects that the roots hold, directly or through other objects, of
    which `examples_by_number` has the values in their places."""
    live_numbers: set[int] = set()
    unvisited = list(roots)
    while unvisited:
        example = unvisited.pop()
        if is_stand_in(state, example):
            number = state.stand_ins[id(example)][0]
            if number not in live_numbers:
                live_numbers.add(number)
                unvisited += examples_by_number.get(number, [])
        elif type(example) in (tuple, list, dict):
            unvisited += example.values() if isinstance(example, dict) else example
        elif isinstance(example, BOUND_TYPES):
            unvisited.append(example.__self__)
    return live_numbers


def forget_dead_objects(state: Specialisation) -> None:
    """Drop from `state.names` the names of objects that nothing holds any more."""
    state.names = select_live_names(state, state.names)
