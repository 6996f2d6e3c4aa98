"""The exits of a block of statements: the ways in which it may be left, and the names that its
paths give then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from regraft.splitting.emitting.single.graph import Graph
from regraft.splitting.emitting.single.graph_values import UNDEFINED, Const, Names
from regraft.splitting.emitting.single.liveness import Needs

EXIT_CODES = {"fall": 0, "break": 1, "continue": 2, "return": 3}  # the ways to leave a block
# not names of the host, as they have blanks
EXIT_CODE, RESULT, ITERATED = (
    "the end",
    "the result",
    "the items",
)

Outcome = Names | None  # None for a block that only raises


@dataclass(frozen=True)
class Exit:
    """What has to happen where the paths of a block leave it.

    needs   the names that are needed after each way to leave: "fall", "break", "continue", "return"
    finish  takes the way, the names and the graph of a path; returns the names that the block gives
    """

    needs: Needs
    finish: Callable[[str, Names, Graph], Names]


def select_names(names: Names, needed: frozenset[str]) -> Names:
    """Return the values of the needed names only; UNDEFINED for a needed name without a value."""
    return {key: names.get(key, UNDEFINED) for key in sorted(needed)}


def fallthrough_exit(needed: frozenset[str]) -> Exit:
    """Return the exit of a block that no statement leaves early: it gives the values of the names
    `needed`."""
    return Exit(dict.fromkeys(EXIT_CODES, needed), lambda _, names, __: select_names(names, needed))


def coded_exit(needs: Needs, synonyms: dict[str, str] | None = None) -> Exit:
    """Return an exit that gives the code of the way under EXIT_CODE, the names that `needs` lists
    for that way, and after a return the result under RESULT.

    synonyms: ways that count as others, such as a `break` that ends the block normally.
    """

    def finish(way: str, names: Names, _: Graph) -> Names:
        """Return the names that the block gives where a path leaves it by `way`, with the code."""
        way = (synonyms or {}).get(way, way)
        result = {RESULT: names[RESULT]} if way == "return" else {}
        return {**select_names(names, needs[way]), **result, EXIT_CODE: Const(EXIT_CODES[way])}

    return Exit(needs, finish)
