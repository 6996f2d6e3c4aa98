"""Guess small values for parameters and attributes from usual names of sizes, rates and flags."""

from __future__ import annotations

import re
from typing import Any

from regraft.verify.child.drivers.field_tables import FLAG_FIELDS, GUESSES, GUESSES_BY_TYPE

_MISSING = object()


def value_for(name: str, annotation: str = "", default: Any = _MISSING) -> Any:
    """Return a value for a constructor parameter or a configuration attribute: `default` if it is
    passed, else False for a flag, else what the name suggests, else what the annotated type
    suggests.

    Raises LookupError where no guess fits.
    """
    if default is not _MISSING:
        return default
    if annotation == "bool" or name in FLAG_FIELDS:
        return False
    for pattern, value in GUESSES:
        if re.search(pattern, name):
            return value[0] if isinstance(value, tuple) and annotation == "int" else value
    if annotation in GUESSES_BY_TYPE:
        return GUESSES_BY_TYPE[annotation]
    raise LookupError(f"no value can be guessed for {name!r}")
