"""Output of a benchmark's result: a table for people and JSON for machines."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch

from regraft import __version__
from regraft.bench.measure import LEVEL, Interval
from regraft.bench.run import Options, Result, Row

Paint = Callable[..., str]


def as_text(result: Result, options: Options, paint: Paint) -> Iterator[str]:
    """Yield the lines of a table for each mode, the choice, and the places that stay as
    they are."""
    yield (
        f"{result.model} on {result.device} ({result.machine}),"
        f" {_count(torch.get_num_threads(), 'thread')}, torch {torch.__version__}; {result.clock},"
        f" medians of up to {options.rounds} pairs, {LEVEL:.0%} intervals"
    )
    width = max((len(_label(row)) for row in result.rows), default=0)
    for mode in options.modes:
        rows = [row for row in result.rows if row.mode == mode]
        yield ""
        yield paint(
            f"{mode:{width}}  {'time':>9}  {'times as fast':>21}  {'peak memory':>11}", bold=True
        )
        yield (
            f"{'original':{width}}  {_time(rows[0].pair.old):>9}  {'':>21} "
            f" {_size(rows[0].bytes_against):>11}"
        )
        for row in rows:
            if row.rules or row.name != row.against:
                yield _line(row, width, paint)
    if options.goal is not None:
        yield ""
        yield from _choice(result, options, paint)
    if result.left:
        yield ""
        yield from (f"left {place}" for place in result.left)


def _line(row: Row, width: int, paint: Paint) -> str:
    """Return the line of a comparison; `width` is that of the label."""
    speed = row.pair.speed
    shown = f"{speed.median:.2f} ({speed.low:.2f}-{speed.high:.2f})"
    verdict = "faster" if speed.low > 1 else "slower" if speed.high < 1 else "no difference"
    colour = {"faster": "green", "slower": "red"}.get(verdict)
    line = f"{_label(row):{width}}  {_time(row.pair.new):>9}  {shown:>21}  {_size(row.bytes):>11}  "
    line += paint(verdict, fg=colour)
    return f"{line}  {paint(f'other results: {row.differs}', fg='red')}" if row.differs else line


def _label(row: Row) -> str:
    """Return the label of a comparison, with what it is compared with unless that is the
    original."""
    return row.name if row.against == "original" else f"{row.name}, against {row.against}"


def _choice(result: Result, options: Options, paint: Paint) -> Iterator[str]:
    """Yield the lines of the choice: the chosen rules, and what each of them adds to the others."""
    choice, goal = result.chosen, options.goal
    assert goal is not None
    if choice is None:
        yield paint("no subset of the rules keeps the limit", fg="red")
    elif choice.whole is None:
        yield f"chosen ({goal.kind}): no rule; none is proved to gain here"
    else:
        row = Row(
            options.modes[0],
            "",
            "",
            (),
            choice.whole.pair,
            choice.whole.bytes,
            choice.whole.bytes_without,
        )
        yield f"chosen ({goal.kind}): {_line(row, 0, paint).strip()}"
        for name, worth in choice.worth.items():
            row = Row(options.modes[0], "", "", (), worth.pair, worth.bytes, worth.bytes_without)
            yield f"  {name}, beside the others: {_line(row, 0, paint).strip()}"


def _time(interval: Interval) -> str:
    """Return the median of an interval in s, ms or µs."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if interval.median * scale >= 1 or unit == "µs":
            return f"{interval.median * scale:.3g} {unit}"
    raise AssertionError


def _size(size: int) -> str:
    """Return bytes in MiB."""
    return f"{size / 2**20:.1f} MiB"


def _count(number: int, word: str) -> str:
    """Return a number with a word, in the plural unless it is 1."""
    return f"{number} {word}{'s' * (number != 1)}"


def as_json(result: Result, options: Options, target: str) -> dict[str, Any]:
    """Return all that was measured: seconds, times as fast and bytes; intervals as low, median,
    high."""
    fields = dataclasses.asdict(result)
    if result.chosen is not None:
        fields["chosen"]["rules"] = sorted(result.chosen.rules)
    return {
        "target": target,
        "regraft": __version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "rounds": options.rounds,
        "level": LEVEL,
        "verified": options.verify,
        **fields,
    }
