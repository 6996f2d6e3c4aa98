"""Nested inputs and outputs: rebuild them, list their leaves, flatten them for comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import torch
from torch import nn

DEPTH = 6  # levels of objects within objects that are looked at

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
    if (
        depth == 0
        or id(value) in ancestors
        or isinstance(value, nn.Module | ModuleType | type)
        or callable(value)
    ):
        return flat
    for key, child in _children(value):
        flat.update(flatten(child, f"{path}[{key!r}]", depth - 1, (*ancestors, id(value))))
    return flat


def _children(value: Any) -> list[tuple[Any, Any]]:
    """Return the elements or attributes of a value with their keys."""
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    if isinstance(value, set | frozenset):
        return list(enumerate(sorted(map(repr, value))))
    return sorted(getattr(value, "__dict__", {}).items())
