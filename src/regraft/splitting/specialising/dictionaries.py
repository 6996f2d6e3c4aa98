"""Methods of dictionaries that forward makes, whose keys are known."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from regraft.splitting.errors import Unsplittable
from regraft.splitting.program.values import StaticValue, Value
from regraft.splitting.specialising.elements import make_tuple
from regraft.splitting.specialising.object_changes import remove_place, set_place
from regraft.splitting.specialising.objects_made_in_forward import (
    get_item_keys,
    get_places,
    is_dict_stand_in,
    look_up_place,
    make_object,
)
from regraft.splitting.specialising.state import Specialisation


def update_dictionary(
    state: Specialisation, node: ast.AST, owner: Any, *args: Value, **keywords: Value
) -> Value:
    """Set the items of the dictionary `owner` to those of the dictionaries `args`, then to the
    keywords, as its `update` and `__init__` do; return the constant None. Raise Unsplittable for
    other arguments."""
    for mapping in args:
        for key, value in list_items(state, node, mapping).items():
            set_place(state, node, owner, ("item", key), value)
    for word, value in keywords.items():
        set_place(state, node, owner, ("item", word), value)
    return state.static(None)


def list_items(state: Specialisation, node: ast.AST, value: Value) -> dict[Any, Value]:
    """Return the items of a dictionary, whose keys have to be known, as values by key; raise
    Unsplittable for other values."""
    if is_dict_stand_in(state, value.example):
        return {
            key: get_item(state, node, value.example, state.static(key))
            for key in get_item_keys(state, node, value.example)
        }
    if isinstance(value, StaticValue) and isinstance(value.example, dict):
        return {key: state.static(item) for key, item in value.example.items()}
    raise state.refuse(node, "only a dictionary whose keys are known can be taken apart")


def get_item(state: Specialisation, node: ast.AST, owner: Any, key: Value) -> Value:
    """Return the value of `d[key]`; raise Unsplittable for a key that the dictionary lacks."""
    value = look_up_place(state, node, owner, ("item", key.example))
    if value is None:
        raise state.refuse(node, f"{key.example!r} is no key of this dictionary here")
    return value


def get_item_or_default(
    state: Specialisation, node: ast.AST, owner: Any, key: Value, default: Value | None = None
) -> Value:
    """Return the value of `d.get(key, default)`: None where the key is absent and no default is
    given."""
    value = look_up_place(state, node, owner, ("item", key.example))
    return value if value is not None else default or state.static(None)


def set_item(state: Specialisation, node: ast.AST, owner: Any, key: Value, value: Value) -> Value:
    """Store the value for `d[key] = value`; return the constant None."""
    set_place(state, node, owner, ("item", key.example), value)
    return state.static(None)


def set_default(
    state: Specialisation, node: ast.AST, owner: Any, key: Value, value: Value | None = None
) -> Value:
    """Return the value of `d.setdefault(key, value)`: the element under the key, under which the
    value, or None, is stored where the key is absent."""
    if look_up_place(state, node, owner, ("item", key.example)) is None:
        set_place(state, node, owner, ("item", key.example), value or state.static(None))
    return get_item(state, node, owner, key)


def pop_item(
    state: Specialisation, node: ast.AST, owner: Any, key: Value, default: Value | None = None
) -> Value:
    """Return the value of `d.pop(key, default)`, and remove the item; raise Unsplittable for an
    absent key without a default."""
    value = (
        get_item_or_default(state, node, owner, key, default)
        if default is not None
        else get_item(state, node, owner, key)
    )
    remove_place(state, node, owner, ("item", key.example))
    return value


def delete_item(state: Specialisation, node: ast.AST, owner: Any, key: Value) -> Value:
    """Remove the item for `del d[key]`; return the constant None. Raise Unsplittable for an absent
    key."""
    pop_item(state, node, owner, key)
    return state.static(None)


def contains_key(state: Specialisation, node: ast.AST, owner: Any, key: Value) -> Value:
    """Return the value of `key in d`."""
    return state.static(("item", key.example) in get_places(state, node, owner))


def count_items(state: Specialisation, node: ast.AST, owner: Any) -> Value:
    """Return the value of `len(d)`."""
    return state.static(len(get_item_keys(state, node, owner)))


def get_keys(state: Specialisation, node: ast.AST, owner: Any) -> Value:
    """Return the value of `d.keys()` as a tuple."""
    return state.static(tuple(get_item_keys(state, node, owner)))


def get_values(state: Specialisation, node: ast.AST, owner: Any) -> Value:
    """Return the value of `d.values()` as a tuple."""
    return make_tuple(state, [*list_items(state, node, state.static(owner)).values()])


def get_items(state: Specialisation, node: ast.AST, owner: Any) -> Value:
    """Return the value of `d.items()` as a tuple of pairs."""
    items = list_items(state, node, state.static(owner)).items()
    return make_tuple(
        state, [make_tuple(state, [state.static(key), value]) for key, value in items]
    )


def copy_dictionary(state: Specialisation, node: ast.AST, owner: Any) -> Value:
    """Return the value of `d.copy()`, a new plain dictionary with the same items."""
    new_dictionary = make_object(state, dict)
    update_dictionary(state, node, new_dictionary.example, state.static(owner))
    return new_dictionary


def refuse_key(state: Specialisation, node: ast.AST) -> Unsplittable:
    """Return the error, for the caller to raise, for a key that the host computes."""
    return state.refuse(
        node,
        "a key of a dictionary that is known only at run time is not supported: where the keys are"
        " whole numbers, use a list with an element for each, or a loop over all of them",
    )


# methods of dictionaries, by their names without the underscores around them
DICTIONARY_METHODS: dict[str, Callable[..., Value]] = {
    "init": update_dictionary,
    "update": update_dictionary,
    "getitem": get_item,
    "get": get_item_or_default,
    "setitem": set_item,
    "setdefault": set_default,
    "pop": pop_item,
    "delitem": delete_item,
    "contains": contains_key,
    "len": count_items,
    "keys": get_keys,
    "values": get_values,
    "items": get_items,
    "copy": copy_dictionary,
}


def call_native(
    state: Specialisation,
    node: ast.AST,
    owner: Any,
    method_name: str,
    args: list[Value],
    keywords: dict[str, Value],
) -> Value:
    """Return the value of a call of a method of `owner`, an object that forward makes, which its
    class inherits from `dict` or `object`. Raises Unsplittable for methods that are not supported,
    views that are kept, and keys known only at run time."""
    handler = DICTIONARY_METHODS.get(method_name.strip("_")) if isinstance(owner, dict) else None
    if method_name == "__init__" and not isinstance(owner, dict) and not args and not keywords:
        return state.static(None)
    if handler is None or (keywords and method_name not in ("__init__", "update")):
        reason = f"{method_name} of a {type(owner).__name__} that forward makes is not supported"
        raise state.refuse(node, reason)
    if method_name in ("__init__", "update"):
        return update_dictionary(state, node, owner, *args, **keywords)
    if method_name in ("keys", "values", "items") and not getattr(node, "at_once", False):
        raise state.refuse(
            node, f"{method_name}() that is kept changes with its dictionary; make a list of it"
        )
    if args and not isinstance(args[0], StaticValue):
        raise refuse_key(state, node)
    return handler(state, node, owner, *args)
