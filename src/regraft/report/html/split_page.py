"""The HTML report of `regraft split`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regraft.report.html.page import render
from regraft.report.split_text import (
    compiler_lines,
    is_slower,
    lines_of,
    speed_lines,
    tensor_text,
)


@dataclass(frozen=True, slots=True)
class RegionView:
    """A region as the table and the picture show it.

    lines            the lines of all of its statements, for each file
    inputs, outputs  names, types and shapes as text
    engine           what runs it: the compiler's name or torch
    compiled, eager  microseconds as text; "" where they were not measured
    """

    number: int
    place: str
    lines: Sequence[str]
    operations: int
    inputs: str
    outputs: str
    limits: Sequence[str]
    engine: str
    island: str
    compiled: str
    eager: str


def split_page(
    target: str, output: str, compiler: str, sources: Sequence[str], report: Mapping[str, Any]
) -> str:
    """Return the page of a split network: the picture of its regions, decisions and loops, and a
    table of its regions.

    target   what was split, as the user names it
    output   where it was written
    sources  the folders that places begin with, which are left out
    report   the fields of the split's report
    """
    regions = [_region(region, compiler, sources) for region in report["regions"]]
    return render(
        "split.html",
        title=f"Regraft: {target} as {report['subnetworks']} sub-networks",
        target=target,
        output=output,
        report=report,
        regions=regions,
        region_by_number={region.number: region for region in regions},
        outline=report["outline"],
        taken=frozenset(report["sides_taken"]),
        speed=[*speed_lines(report), *compiler_lines(report)],
        is_slower=is_slower(report),
        shorten=lambda place: _shortened(place, sources),
    )


def _region(region: Mapping[str, Any], compiler: str, sources: Sequence[str]) -> RegionView:
    """Return the view of a region."""
    seconds = region["seconds"]
    compiled, eager = ("", "") if seconds is None else (f"{time * 1e6:.0f} µs" for time in seconds)
    return RegionView(
        region["number"],
        _shortened(region["place"], sources),
        [_shortened(lines, sources) for lines in lines_of(region)],
        region["operations"],
        "; ".join(map(tensor_text, region["inputs"])),
        "; ".join(map(tensor_text, region["outputs"])),
        region["limits"],
        "torch" if region["island"] else compiler,
        region["island"],
        compiled,
        eager,
    )


def _shortened(place: str, sources: Sequence[str]) -> str:
    """Return a place without the first of the folders that it begins with."""
    return next(
        (place[len(folder) + 1 :] for folder in sources if place.startswith(f"{folder}/")), place
    )
