"""The numbers of layers of a configuration, and its fields that have an entry for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regraft.verification.child.drivers.field_kinds import is_layers
from regraft.verification.child.drivers.field_tables import (
    KINDS,
    LAYER_PATTERN_FIELDS,
    LAYER_POSITION_FIELDS,
    LAYERS,
)


@dataclass(frozen=True, slots=True)
class LayerCounts:
    """The numbers of layers that the fields of a configuration state, and the `target` to which
    larger ones shrink."""

    counts: tuple[int, ...]
    target: int

    @property
    def most(self) -> int:
        """Return the largest number of layers; 0 where there is none."""
        return max(self.counts, default=0)


def layer_counts(config: Mapping[str, Any]) -> LayerCounts:
    """Return the numbers of layers in a configuration, and the number to which it shrinks.

    That number is LAYERS, or more where the configuration lists several kinds of layers or a
    repeated pattern of layers: then as many as there are kinds, or layers in the pattern. Kinds
    or patterns of more than KINDS are ignored.
    """
    counts = tuple(v for k, v in config.items() if is_layers(k) and isinstance(v, int))
    kinds = (*_listed_kind_counts(config, counts), *_pattern_lengths(config, counts))
    return LayerCounts(counts, max((LAYERS, *(kind for kind in kinds if kind <= KINDS))))


def _listed_kind_counts(config: Mapping[str, Any], counts: tuple[int, ...]) -> list[int]:
    """Return the numbers of different strings, or kinds of layers, in lists with a string for each
    layer; [] for no such list."""
    lists = (value for value in config.values() if _is_string_list(value))
    return [len(set(value)) for value in lists if len(value) in counts]


def _pattern_lengths(config: Mapping[str, Any], counts: tuple[int, ...]) -> list[int]:
    """Return the lengths of lists of strings that are shorter than the layers and, by the names of
    their fields, repeated over them; [] for none."""
    fewest = min(counts, default=0)
    return [
        len(value)
        for name, value in config.items()
        if _is_string_list(value) and name in LAYER_PATTERN_FIELDS and len(value) < fewest
    ]


def _is_string_list(value: Any) -> bool:
    """Return whether a value is a list or tuple of strings, and not empty."""
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(element, str) for element in value)
    )


def cut_list_by_layer(values: list[Any], count: int) -> list[Any]:
    """Return `count` elements: the first of each kind, then the first of the whole list. Elements
    are of the same kind if their texts (`repr`) are equal."""
    kinds = dict.fromkeys(map(repr, values))
    first_of_kinds = [next(v for v in values if repr(v) == kind) for kind in kinds][:count]
    return (first_of_kinds + values)[:count]


def cut_positions(positions: list[int], count: int) -> list[int]:
    """Return the positions that are below `count`, at most one fewer than `count` so that a layer
    of the other kind remains; the last of the `count` layers where there is no such position."""
    return [position for position in positions if position < count][: count - 1] or [count - 1]


def is_list_of_positions(name: str, value: list[Any], layers: LayerCounts) -> bool:
    """Return whether a field has the name of a list of positions of layers, and holds different
    integers below the number of layers."""
    are_distinct_integers = len(set(map(repr, value))) == len(value) and all(
        type(element) is int for element in value
    )
    return name in LAYER_POSITION_FIELDS and are_distinct_integers and max(value) < layers.most
