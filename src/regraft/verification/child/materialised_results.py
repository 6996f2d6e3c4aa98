"""Results with what their iterators yield, and what their modules hold."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from regraft.execution.nested import iterate_leaves, map_leaves

_MOST = 1000  # elements that are drawn from an iterator


@dataclass(slots=True)
class _Drawn:
    """What an iterator yields, at most `_MOST` elements, beside the name of its type."""

    kind: str
    elements: list[Any]


@dataclass(slots=True)
class _Layers:
    """A module as its caller sees it: the text of its layers, their parameters and buffers."""

    text: str
    tensors: dict[str, Any]


def materialise(result: Any, model: Any) -> Any:
    """Return the result of a call with iterators replaced by what they yield, which runs the code
    of generators now, and modules by a description; the result itself where it has neither. The
    `model` that was called stays as it is.

    Only lists, tuples and dictionaries are searched.
    """
    leaves = iterate_leaves(result, _is_plain_container)
    if not any(isinstance(leaf, Iterator | nn.Module) for leaf in leaves):
        return result

    def replace_leaf(leaf: Any) -> Any:
        """Return the elements of an iterator, the description of a module, any other leaf as it
        is."""
        if isinstance(leaf, Iterator):
            return _Drawn(type(leaf).__qualname__, list(itertools.islice(leaf, _MOST)))
        if isinstance(leaf, nn.Module) and leaf is not model:
            tensors = {**dict(leaf.named_parameters()), **dict(leaf.named_buffers())}
            return _Layers(repr(leaf), tensors)
        return leaf

    return map_leaves(result, replace_leaf, _is_plain_container)


def _is_plain_container(value: Any) -> bool:
    """Return whether a value is a list, tuple or dictionary of no other class."""
    return type(value) in (list, tuple, dict)
