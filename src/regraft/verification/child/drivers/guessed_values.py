"""Guess a small value for a parameter or an attribute from its name and type, by the tables of
`field_tables`."""

from __future__ import annotations

import re
from typing import Any

from regraft.verification.child.drivers.field_tables import FLAG_FIELDS, GUESSES, GUESSES_BY_TYPE

_NO_DEFAULT = object()  # None is a default


def value_for(name: str, annotation: str = "", default: Any = _NO_DEFAULT) -> Any:
    """Return a value for a constructor parameter or a configuration attribute.

    It is `default` if that is passed, None included; else False for a flag, by its type or its
    name; else the value of the first pattern of `GUESSES` that is found in the name, of a pair its
    first number where `annotation` is "int"; else the value for the annotated type
    (`GUESSES_BY_TYPE`). Raises LookupError where none of these applies.
    """
    if default is not _NO_DEFAULT:
        return default
    if annotation == "bool" or name in FLAG_FIELDS:
        return False
    for pattern, value in GUESSES:
        if re.search(pattern, name):
            return value[0] if isinstance(value, tuple) and annotation == "int" else value
    if annotation in GUESSES_BY_TYPE:
        return GUESSES_BY_TYPE[annotation]
    raise LookupError(f"no value can be guessed for {name!r}")
