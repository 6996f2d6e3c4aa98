"""Values on the other side of zero, and zero, for numbers that are positive in usual calls."""

from __future__ import annotations

from typing import Any

from regraft.verify.child.drivers import config_shrinking
from regraft.verify.child.drivers.field_tables import CHANCE_FIELDS, HEAD_FIELDS

_EPSILON = 1e-3  # floating point numbers below this are added to avoid a division by zero
_LARGEST = 8  # the largest whole number that may be a shift, a dimension or an index
_FRACTION, _STEP = 0.2, 1  # the numbers whose opposites stand in for that of zero


def opposite_numbers(name: str, value: Any) -> tuple[float, ...]:
    """Return the opposite of a number, then zero, as values for a parameter or field.

    Whole numbers above 8, sizes and numbers of heads have none, because -1 stands for a size that
    is computed; a number of layers may become zero only. Epsilons and rates of chance have none.
    """
    if type(value) is float and name not in CHANCE_FIELDS:
        if value == 0:
            return (-_FRACTION,)
        return () if abs(value) < _EPSILON else (-value, 0.0)
    if type(value) is not int or abs(value) > _LARGEST:
        return ()
    if config_shrinking.is_size(name) or name in HEAD_FIELDS:
        return ()
    if config_shrinking.is_layers(name):
        return (0,) if value else ()
    return (-value, 0) if value else (-_STEP,)
