"""Nested inputs and outputs: rebuild them, list their leaves, flatten them for comparison."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from datetime import date, timedelta
from decimal import Decimal
from pathlib import PurePath
from types import ModuleType
from typing import Any

import torch
from torch import nn

DEPTH = 6  # levels of objects within objects that are looked at

# Types whose values are compared as text, and those that are like lists.
_TEXTUAL = (bytes, bytearray, Decimal, date, timedelta, PurePath)
_SEQUENCES = (list, tuple, deque, KeysView, ValuesView, ItemsView)

Test = Callable[[Any], bool]


def is_rebuildable(value: Any) -> bool:
    """Return whether a value is a list or tuple of no other class, a named tuple or a mapping."""
    return (
        type(value) in (list, tuple)
        or isinstance(value, Mapping)
        or (isinstance(value, tuple) and hasattr(value, "_fields"))
    )


def map_leaves(value: Any, fn: Callable[[Any], Any], is_container: Test = is_rebuildable) -> Any:
    """Rebuild nested containers with `fn` applied to all other values.

    is_container: tells the values to look into, all of them such that `is_rebuildable` accepts. A
    mapping other than a dictionary is rebuilt by its class with its values as keyword arguments.
    """
    if not is_container(value):
        return fn(value)
    if isinstance(value, Mapping):
        mapped = {key: map_leaves(element, fn, is_container) for key, element in value.items()}
        return mapped if type(value) is dict else type(value)(**mapped)
    elements = (map_leaves(element, fn, is_container) for element in value)
    return type(value)(*elements) if hasattr(value, "_fields") else type(value)(elements)


def iterate_leaves(value: Any, is_container: Test = is_rebuildable) -> Iterator[Any]:
    """Yield the leaves of nested containers in order.

    is_container: tells the values to look into: mappings, whose values are visited, and iterables.
    """
    if not is_container(value):
        yield value
        return
    for element in value.values() if isinstance(value, Mapping) else value:
        yield from iterate_leaves(element, is_container)


def copy_leaf(value: Any) -> Any:
    """Return a detached copy of a tensor; other values as they are."""
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def flatten(
    value: Any, path: str = "output", depth: int = DEPTH, ancestors: tuple[int, ...] = ()
) -> dict[str, Any]:
    """Return every comparable leaf by its path; containers and objects add the name of their type
    as a leaf."""
    if value is None or isinstance(
        value, torch.Tensor | bool | int | float | str | torch.dtype | torch.device
    ):
        return {path: value}
    flat: dict[str, Any] = {f"type of {path}": type(value).__qualname__}
    if isinstance(value, _TEXTUAL):
        return {**flat, path: str(value)}
    if type(value).__module__ == "numpy":
        return {**flat, **_leaves_of_array(value, path)}
    if (
        depth == 0
        or id(value) in ancestors
        or isinstance(value, nn.Module | ModuleType | type)
        or (callable(value) and not isinstance(value, functools.partial))
    ):
        return flat
    for key, child in _children(value):
        flat.update(flatten(child, f"{path}[{key!r}]", depth - 1, (*ancestors, id(value))))
    return flat


def _children(value: Any) -> list[tuple[Any, Any]]:
    """Return the elements or attributes of a value with their keys, attributes in slots
    included."""
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, _SEQUENCES):
        return list(enumerate(value))
    if isinstance(value, set | frozenset):
        return list(enumerate(sorted(map(repr, value))))
    if isinstance(value, range | slice):
        return [("start", value.start), ("stop", value.stop), ("step", value.step)]
    if isinstance(value, complex):
        return [("real", value.real), ("imag", value.imag)]
    if isinstance(value, functools.partial):
        return [("args", value.args), ("keywords", value.keywords)]
    return sorted({**_values_of_slots(value), **getattr(value, "__dict__", {})}.items())


def _values_of_slots(value: Any) -> dict[str, Any]:
    """Return by name what the slots of an object of a class written in Python hold; empty slots
    are left out."""
    names: list[str] = []
    for part in type(value).__mro__:
        slots = vars(part).get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    usual_names = [name for name in names if not name.startswith("__")]
    return {name: getattr(value, name) for name in usual_names if hasattr(value, name)}


def _leaves_of_array(value: Any, path: str) -> dict[str, Any]:
    """Return the leaves of an array or a number of NumPy: its format, and a tensor that shares its
    memory, or a text for elements that no tensor can hold."""
    leaves: dict[str, Any] = {f"format of {path}": str(getattr(value, "dtype", ""))}
    try:
        array = value.__array__()
        is_shareable = array.flags.writeable and all(step >= 0 for step in array.strides)
        leaves[path] = torch.from_numpy(array if is_shareable else array.copy())
    except (AttributeError, TypeError):
        leaves[path] = str(value)
    return leaves
