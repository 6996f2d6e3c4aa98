"""Names that nothing else has."""

from __future__ import annotations

from collections.abc import Collection


def unused_name(name: str, occupied: Collection[str]) -> str:
    """Return `name`, with underscores added until it is not among `occupied`."""
    while name in occupied:
        name += "_"
    return name
