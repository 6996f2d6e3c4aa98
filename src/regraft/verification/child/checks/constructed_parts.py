"""Build a changed class by itself from the constants that other classes of the file pass to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from regraft.verification.child.drivers.standalone_parts import Part, accepts
from regraft.verification.child.session import Session

TRIES = 6  # the most combinations of constants that are tried for one instance


def _other_arguments(part: Part, session: Session) -> list[dict[str, Any]]:
    """Return, for each construction of the part's class that stands for a builder which has not
    run, those of its arguments that the part may get, if one of them differs from the part's own;
    equal ones once. A value that is not known becomes a size of the part."""
    combinations: list[dict[str, Any]] = []
    for constants in session.constructions_to_try(part.definition):
        values = {
            name: ast.literal_eval(shown) if shown else _size_in(part)
            for name, shown in constants
            if shown or part.arguments.get(name) is None
        }
        differs = any(
            repr(part.arguments.get(name)) != repr(value) for name, value in values.items()
        )
        if differs and values not in combinations:
            combinations.append(values)
    return combinations


def parts_as_constructed(part: Part, session: Session) -> Iterator[Part]:
    """Yield the part with the constants of each construction of its class by a builder that has not
    run, where these differ from the part's and the original accepts them; at most `TRIES` are
    tried, while there is time."""
    for values in _other_arguments(part, session)[:TRIES]:
        constructed = replace(part, arguments={**part.arguments, **values})
        if session.ledger.is_late():
            return
        if accepts(constructed, session):
            yield constructed


def _size_in(part: Part) -> int | None:
    """Return the largest integer among a part's arguments; None where there is none."""
    sizes = [value for value in part.arguments.values() if type(value) is int]
    return max(sizes, default=None)
