"""Output of a benchmark's result: a table for people and JSON for machines."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from regraft import __version__
from regraft.benchmarking.median_intervals import LEVEL, Interval
from regraft.benchmarking.options_and_results import Options, Result, Row, label_of
from regraft.benchmarking.rule_selection import Worth
from regraft.report.counted_nouns import count

Paint = Callable[..., str]


def as_text(result: Result, options: Options, paint: Paint) -> Iterator[str]:
    """Yield the lines of a table for each mode, the choice, and the places that stay as
    they are."""
    table = Table([label_of(row.name, row.against) for row in result.rows], paint)
    yield from heading(result, options)
    for row in result.rows:
        yield from table.lines(row)
    yield from closing(result, options, paint)


def heading(result: Result, options: Options) -> Iterator[str]:
    """Yield what is measured, where, and how it is proved."""
    yield (
        f"{result.model} on {result.device} ({result.machine}),"
        f" {count(torch.get_num_threads(), 'thread')}, torch {torch.__version__}; {result.clock},"
        f" medians of up to {options.rounds} pairs, {LEVEL:.0%} intervals"
    )
    yield from result.notes


class Table:
    """The rows of a result as lines, one row after the other in any order of a mode's."""

    def __init__(self, labels: Sequence[str], paint: Paint) -> None:
        """`labels` are those of all rows to come."""
        self._width = max(map(len, labels), default=0)
        self._paint = paint
        self._mode = ""

    def lines(self, row: Row) -> Iterator[str]:
        """Yield the line of a row, after the head of the table where it is the first of its
        mode."""
        width = self._width
        if row.mode != self._mode and row.against == "original":
            self._mode = row.mode
            yield ""
            title = f"{row.mode:{width}}  {'time':>9}  {'times as fast':>21}  {'peak memory':>11}"
            yield self._paint(title, bold=True)
            yield (
                f"{'original':{width}}  {_time(row.pair.old):>9}  {'':>21} "
                f" {_size(row.bytes_against):>11}"
            )
        if row.rules or row.name != row.against:
            yield _line(row, width, self._paint)


def closing(result: Result, options: Options, paint: Paint) -> Iterator[str]:
    """Yield what is said after the rows: the choice or that the benchmark was interrupted, and the
    places that stay as they are."""
    if result.interrupted:
        yield ""
        yield paint(f"partial: interrupted while {result.interrupted}", fg="red")
        if options.goal is not None:
            yield "nothing is chosen, and no lock file is written"
    elif options.goal is not None:
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
    label = f"{label_of(row.name, row.against):{width}}"
    line = f"{label}  {_time(row.pair.new):>9}  {shown:>21}  {_size(row.bytes):>11}  "
    line += paint(verdict, fg=colour)
    line += "" if row.is_complete else ", so far"
    return f"{line}  {paint(f'other results: {row.differs}', fg='red')}" if row.differs else line


def _choice(result: Result, options: Options, paint: Paint) -> Iterator[str]:
    """Yield the lines of the choice: the chosen rules, and what each of them adds to the others."""
    choice, goal = result.chosen, options.goal
    assert goal is not None
    if choice is None:
        yield paint("no subset of the rules keeps the limit", fg="red")
    elif choice.whole is None:
        yield f"chosen ({goal.kind}): no rule; none is proved to gain here"
    else:
        yield f"chosen ({goal.kind}): {_worth(choice.whole, options, paint)}"
        for name, worth in choice.worth.items():
            yield f"  {name}, beside the others: {_worth(worth, options, paint)}"


def _worth(worth: Worth, options: Options, paint: Paint) -> str:
    """Return the worth of rules as a row without a label."""
    sizes = worth.bytes, worth.bytes_without
    row = Row(options.modes[0], "", "original", (), worth.pair, *sizes)
    return _line(row, 0, paint).strip()


def _time(interval: Interval) -> str:
    """Return the median of an interval in s, ms or µs."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if interval.median * scale >= 1 or unit == "µs":
            return f"{interval.median * scale:.3g} {unit}"
    raise AssertionError


def _size(size: int) -> str:
    """Return bytes in MiB."""
    return f"{size / 2**20:.1f} MiB"


def as_json(result: Result, options: Options, target: str) -> dict[str, Any]:
    """Return all that was measured: seconds, times as fast and bytes; intervals as low, median,
    high."""
    fields = dataclasses.asdict(result)
    if result.chosen is not None:
        fields["chosen"]["rules"] = sorted(result.chosen.rules)
    return {
        "version": 1,
        "target": target,
        "regraft": __version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "rounds": options.rounds,
        "level": LEVEL,
        "verified": options.verify,
        **fields,
    }
