"""Choose the opposite of a number, and zero, as further values for numbers that are positive in
usual calls: code may treat them differently."""

from __future__ import annotations

from typing import Any

from regraft.verification.child.drivers import field_kinds
from regraft.verification.child.drivers.field_tables import CHANCE_FIELDS, HEAD_FIELDS

_EPSILON = 1e-3  # smaller floats are added to a divisor, and keep their value
_LARGEST = 8  # the largest integer that may be a shift, a dimension or an index
_LARGEST_AXIS = 3  # the largest `dim` that is an axis, not a width
_FRACTION, _STEP = 0.2, 1  # the float and the integer whose opposites stand in for that of zero


def opposite_numbers(name: str, value: Any) -> tuple[float, ...]:
    """Return the opposite of a number, then zero, as values for a parameter or field with a name;
    for zero, only a negative number (`_FRACTION`, `_STEP`).

    () is returned for booleans and values that are no numbers; for integers larger than `_LARGEST`
    in either direction, sizes and numbers of heads, since -1 may stand for a size that is computed;
    and for epsilons and rates of chance. A number of layers may become zero only. A `dim` is an
    axis up to `_LARGEST_AXIS`, and a size above.
    """
    if type(value) is float and name not in CHANCE_FIELDS:
        if value == 0:
            return (-_FRACTION,)
        return () if abs(value) < _EPSILON else (-value, 0.0)
    if type(value) is not int or abs(value) > _LARGEST:
        return ()
    is_axis = name == "dim" and abs(value) <= _LARGEST_AXIS
    if (field_kinds.is_size(name) and not is_axis) or name in HEAD_FIELDS:
        return ()
    if field_kinds.is_layers(name):
        return (0,) if value else ()
    return (-value, 0) if value else (-_STEP,)
