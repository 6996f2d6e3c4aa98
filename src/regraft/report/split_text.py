"""The report of a split network as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SLOWER = 1.05  # times the original's time, above which a split network is reported as slower
_SECTIONS = (
    ("stays eager, so the host needs torch", "islands"),
    ("raises an error, never checked", "unseen"),
    ("takes only these sizes", "listed_sizes"),
    ("kept from call to call (.state, .reset())", "carried"),
    ("a variable of the call only", "not_left"),
    ("decided otherwise at a threshold", "at_threshold"),
    ("differs by rounding", "rounding"),
)
_HEADS = ("region", "lines", "operations", "inputs", "outputs", "engine", "torch", "guards")


def split_text(report: Mapping[str, Any]) -> str:
    """Return the report of a split, by its fields, as lines of text: counts, speed, what is to be
    noted, and a table of the regions with times in microseconds."""
    rows = [region_row(region) for region in report["regions"]]
    lines = [
        counts_line(report),
        *speed_lines(report),
        *compiler_lines(report),
        *noted_lines(report, _SECTIONS),
    ]
    return "\n".join([*lines, *table_lines([_HEADS, *rows])])


def summary_text(report: Mapping[str, Any]) -> str:
    """Return the report of a split as lines of text: counts, where the speed has to be known, and
    what the network does otherwise than the original."""
    lines = [
        counts_line(report),
        *(speed_lines(report) if is_slower(report) else ()),
        *compiler_lines(report),
        *noted_lines(report, _SECTIONS[:5]),
    ]
    return "\n".join(lines)


def counts_line(report: Mapping[str, Any]) -> str:
    """Return the counts of what was made and compared."""
    return (
        f"{report['subnetworks']} sub-networks of {report['models']} models,"
        f" {report['sides_run']} of {report['sides']} sides of branches run,"
        f" equal on {report['inputs_checked']} inputs, {report['seconds']} s"
    )


def noted_lines(report: Mapping[str, Any], sections: Sequence[tuple[str, str]]) -> list[str]:
    """Return a line for each entry of the sections, of which each is words and a field."""
    return [f"{words}: {entry}" for words, field in sections for entry in report[field]]


def speed_lines(report: Mapping[str, Any]) -> list[str]:
    """Return a line on the time of a call beside the original's; none where it was not measured."""
    if report["times"] is None:
        return []
    split, eager = report["times"]
    words = "slower than" if is_slower(report) else "beside"
    return [
        f"a call takes {split * 1e6:.0f} us, {words} PyTorch's {eager * 1e6:.0f} us"
        f" ({eager / split:.2f} times the speed)"
    ]


def compiler_lines(report: Mapping[str, Any]) -> list[str]:
    """Return a line for each compiler that was tried for the fastest one."""
    return [
        f"compiler {trial['compiler']}: "
        + (trial["reason"] or f"{_microseconds(trial['seconds'])} a call")
        for trial in report["compilers"]
    ]


def is_slower(report: Mapping[str, Any]) -> bool:
    """Return whether the split network was measured to be slower than the original."""
    return report["times"] is not None and report["times"][0] > SLOWER * report["times"][1]


def region_row(region: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of a region in the table; `torch` as the engine's time says that torch runs
    it."""
    engine, eager = ("", "") if region["seconds"] is None else map(_microseconds, region["seconds"])
    return (
        str(region["number"]),
        "; ".join(lines_of(region)),
        str(region["operations"]),
        "; ".join(map(tensor_text, region["inputs"])),
        "; ".join(map(tensor_text, region["outputs"])),
        f"{engine} stays in torch".strip() if region["island"] else engine,
        eager,
        " and ".join(region["limits"]),
    )


def lines_of(region: Mapping[str, Any]) -> Sequence[str]:
    """Return the lines of a region's statements, for each file; of a network that was split before
    these were recorded, the place of its first one."""
    lines: Sequence[str] = region.get("lines", (region["place"],))
    return lines


def _microseconds(seconds: float) -> str:
    """Return a time in microseconds as text."""
    return f"{seconds * 1e6:.0f} us"


def tensor_text(tensor: Mapping[str, Any]) -> str:
    """Return a tensor as `x: float32 (3, any)`."""
    sizes = ", ".join("any" if size is None else str(size) for size in tensor["shape"])
    return f"{tensor['name']}: {tensor['type']} ({sizes})"


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
