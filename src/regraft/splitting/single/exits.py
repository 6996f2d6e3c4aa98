"""How a block of statements may be left, and what its paths give then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from regraft.splitting.single.graph import Graph
from regraft.splitting.single.liveness import Needs
from regraft.splitting.single.values import UNDEFINED, Const, Names

CODES = {"fall": 0, "break": 1, "continue": 2, "return": 3}  # the ways to leave
END, RESULT, ITEMS = "the end", "the result", "the items"  # beside the host's names, which have no blanks

Found = Names | None  # None: the block only raises


@dataclass(frozen=True)
class Exit:
    """What becomes of a path that leaves a block: `finish(way, names, graph)`, and the names it needs of each way."""

    needs: Needs
    finish: Callable[[str, Names, Graph], Names]


def only(names: Names, needed: frozenset[str]) -> Names:
    return {key: names.get(key, UNDEFINED) for key in sorted(needed)}


def falling(needed: frozenset[str]) -> Exit:
    """Of a block that is never left early."""
    return Exit(dict.fromkeys(CODES, needed), lambda _, names, __: only(names, needed))


def marked(needs: Needs, renamed: dict[str, str] | None = None) -> Exit:
    """Every path says how it left, under END, and gives what is needed then. renamed: ways that mean others."""

    def finish(way: str, names: Names, _: Graph) -> Names:
        way = (renamed or {}).get(way, way)
        result = {RESULT: names[RESULT]} if way == "return" else {}
        return {**only(names, needs[way]), **result, END: Const(CODES[way])}

    return Exit(needs, finish)
