"""Divide the width of the heads of a shrunk configuration into the parts that lists of it state,
such as those for the axes of rotary embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from regraft.verification.child.drivers.field_tables import HEAD_SIZE_FIELDS

_LEAST = 2  # the smallest part: the features of a rotary embedding are pairs


def divide_head_widths(fields: Mapping[str, Any], small: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return, by name, even parts of the small width of a head for each list of integers that adds
    up to the width in `fields`; a list whose parts would be too small is left out. `small` are the
    shrunk fields."""
    widths = {
        value: small[name]
        for name, value in fields.items()
        if name in HEAD_SIZE_FIELDS and type(value) is int and type(small[name]) is int
    }
    parts = {
        name: _even_parts(value, widths[sum(value)])
        for name, value in fields.items()
        if _is_list_of_integers(value) and sum(value) in widths
    }
    return {name: values for name, values in parts.items() if values[-1] >= _LEAST}


def _is_list_of_integers(value: Any) -> bool:
    """Return whether a value is a list or tuple of several integers."""
    return (
        isinstance(value, list | tuple)
        and len(value) > 1
        and all(type(element) is int for element in value)
    )


def _even_parts(parts: Sequence[int], width: int) -> list[int]:
    """Return even numbers in about the proportions of some parts, and last the number that
    completes a width."""
    total = sum(parts)
    even = [max(_LEAST, part * width // total // 2 * 2) for part in parts[:-1]]
    return [*even, width - sum(even)]
