"""The tables of the outcomes, and the list of false proofs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from mutants.core import KINDS, RIGHT
from mutants.store import Outcome


def report(outcomes: Iterable[Outcome], equivalent: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the report; mutants that are equivalent to the original do not count."""
    outcomes = tuple(outcomes)
    wrong = [
        outcome for outcome in outcomes if outcome.kind != RIGHT and outcome.name not in equivalent
    ]
    right = [outcome for outcome in outcomes if outcome.kind == RIGHT]
    header = ["kind", "planted", "refuted", "unproven", "proved = false proof", "error", "files"]
    yield from _lines(
        [header, *_rows(wrong, [kind for kind in KINDS if any(o.kind == kind for o in wrong)])]
    )
    left_out = sum(outcome.name in equivalent for outcome in outcomes)
    if left_out:
        yield f"equivalent to the original, not counted: {left_out}"
    if right:
        yield ""
        header = ["right edits", "planted", "refuted", "unproven", "proved", "error", "files"]
        yield from _lines([header, *_rows(right, sorted({_recipe(o) for o in right}), _recipe)])
        proved = sum(outcome.outcome == "proved" for outcome in right)
        yield f"right edits proved: {proved} of {len(right)} ({proved / len(right):.0%})"
    yield from _listed(
        "false proofs", [outcome for outcome in wrong if outcome.outcome == "proved"]
    )
    yield from _listed(
        "right edits that are not proved", [o for o in right if o.outcome != "proved"]
    )
    yield from _listed("errors", [outcome for outcome in wrong if outcome.outcome == "error"])


def _kind(outcome: Outcome) -> str:
    return outcome.kind


def _recipe(outcome: Outcome) -> str:
    return outcome.name.partition(" ")[0]


def _rows(
    outcomes: Sequence[Outcome], groups: Sequence[str], group_of: Callable[[Outcome], str] = _kind
) -> Iterator[list[str]]:
    for group in (*groups, "total"):
        mine = [o for o in outcomes if group == "total" or group == group_of(o)]
        counts = [
            sum(o.outcome == outcome for o in mine)
            for outcome in ("refuted", "unproven", "proved", "error")
        ]
        yield [group, *map(str, [len(mine), *counts, len({o.file for o in mine})])]


def _lines(rows: Iterable[list[str]]) -> Iterator[str]:
    rows = list(rows)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        first, *rest = (
            cell.ljust(w) if not n else cell.rjust(w)
            for n, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join([first, *rest])


def _listed(title: str, outcomes: Sequence[Outcome]) -> Iterator[str]:
    if outcomes:
        yield ""
        yield f"{title}:"
    for outcome in sorted(outcomes, key=lambda outcome: (outcome.kind, outcome.name)):
        place = f"{outcome.file}:{outcome.line} {outcome.definition}"
        yield f"{place} [{outcome.kind}/{_recipe(outcome)}] {outcome.description}"
        if outcome.differs and outcome.outcome == "proved":
            yield f"    differs for {outcome.differs}"
        if outcome.reason:
            yield f"    {outcome.reason[:300]}"
