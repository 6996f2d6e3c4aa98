"""The HTML report of `regraft bench`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regraft.report.html.page import render

# Sizes of a plot in pixels: the width of labels, that of the scale, and the height of a row.
LABELS = 330
SCALE = 560
ROW = 26
SCALE_START = LABELS + 10
_TICKS = (0.1, 0.25, 0.5, 0.67, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)


@dataclass(frozen=True, slots=True)
class BarView:
    """A row of a table and its bar in the plot.

    time    the median time of the variant
    speed   how many times as fast it is, with its interval
    memory  its peak memory
    x       the places of the low end, the median and the high end on the scale, in pixels
    """

    label: str
    time: str
    speed: str
    memory: str
    verdict: str
    differs: str
    x: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class PlotView:
    """The rows of one mode, with the ticks of their scale: places in pixels and numbers."""

    mode: str
    bars: Sequence[BarView]
    ticks: Sequence[tuple[float, str]]

    @property
    def height(self) -> int:
        """The height of the plot, in pixels."""
        return ROW * (len(self.bars) + 1) + 10


def bench_page(result: Mapping[str, Any]) -> str:
    """Return the page of a benchmark's result, which is as the JSON output has it: for each mode a
    plot and a table of the variants, then the choice and the places that stay as they are."""
    rows = [row for row in result["rows"] if row["rules"] or row["name"] != row["against"]]
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    chosen = result["chosen"]
    return render(
        "bench.html",
        title=f"Regraft: what rules are worth for {result['model']}",
        result=result,
        plots=[_plot(mode, [row for row in rows if row["mode"] == mode]) for mode in modes],
        chosen=None if chosen is None else chosen["rules"],
        left=SCALE_START,
        scale=SCALE,
        row=ROW,
    )


def _plot(mode: str, rows: Sequence[Mapping[str, Any]]) -> PlotView:
    """Return the plot of rows on a logarithmic scale that holds all their intervals and 1."""
    ends = [row["pair"]["speed"][end] for row in rows for end in ("low", "high")]
    low, high = min(*ends, 0.95) / 1.03, max(*ends, 1.05) * 1.03

    def place(speed: float) -> float:
        """Return the place of a number of times as fast, in pixels."""
        return SCALE_START + SCALE * math.log(speed / low) / math.log(high / low)

    ticks = [(place(tick), f"{tick:g}") for tick in _TICKS if low <= tick <= high]
    return PlotView(mode, [_bar(row, place) for row in rows], ticks)


def _bar(row: Mapping[str, Any], place: Callable[[float], float]) -> BarView:
    """Return the row of a variant; `place` returns the place of a speed on the scale."""
    speed = row["pair"]["speed"]
    against = "" if row["against"] == "original" else f", against {row['against']}"
    incomplete = "" if row["is_complete"] else ", so far"
    verdict = "faster" if speed["low"] > 1 else "slower" if speed["high"] < 1 else "no difference"
    return BarView(
        row["name"] + against,
        f"{row['pair']['new']['median'] * 1e3:.3g} ms",
        f"{speed['median']:.2f} ({speed['low']:.2f}-{speed['high']:.2f})",
        f"{row['bytes'] / 2**20:.1f} MiB, before {row['bytes_against'] / 2**20:.1f}",
        verdict + incomplete,
        row["differs"],
        (place(speed["low"]), place(speed["median"]), place(speed["high"])),
    )
