"""Output of a profile: a table for people and JSON for machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from regraft import __version__
from regraft.benchmarking.expected_gains import Gain, Opportunity, Range
from regraft.benchmarking.profile import Profile, Row
from regraft.report.counted_nouns import count
from regraft.scanning import Finding

Paint = Callable[..., str]
_SMALLEST_SHARE = 0.02  # of a definition without findings that has a row of its own
_MOST_PLAIN_ROWS = 8
_LARGEST_SLOWDOWN = 0.15  # by being profiled, that nothing is said about
_HEADINGS = ("definition", "place", "calls", "share", "time", "memory", "can save")


def as_text(profile: Profile, next_command: str, paint: Paint) -> Iterator[str]:
    """Yield the lines of the table, of what all findings are expected to gain, and of the next
    step."""
    yield (
        f"{profile.model}, {profile.mode} on {profile.device} ({profile.machine}),"
        f" {count(torch.get_num_threads(), 'thread')}, torch {torch.__version__}"
    )
    memory = "unknown" if profile.peak_bytes is None else _size(profile.peak_bytes)
    yield (
        f"a step takes {_time(profile.seconds)} ({_time(profile.profiled_seconds)} while it is"
        f" profiled; {profile.clock}, mean of {count(profile.steps, 'profiled step')}) and"
        f" {memory} beyond parameters and inputs"
    )
    yield (
        "share, time: of a definition's own lines, with the PyTorch operations that they call"
        f"{' and their backward pass' * (profile.mode == 'training')};"
        " memory: what they hold when most is used"
    )
    yield ""
    yield from _table(profile, paint)
    yield ""
    yield from _notes(profile)
    yield from _expectation(profile, paint)
    if profile.candidates:
        yield f"next: {next_command}"


def _table(profile: Profile, paint: Paint) -> Iterator[str]:
    """Yield the lines of the table of definitions, with their findings below them."""
    shown, folded, outside = _grouped(profile.rows)
    cells = [_cells(row, profile) for row in shown]
    findings = [row.opportunities for row in shown]
    for name, rows in (
        (count(len(folded), "other definition"), folded),
        ("outside of the model's files", outside),
    ):
        if rows:
            cells.append((name, "", "", *_amounts(rows, profile), ""))
            findings.append(())
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *cells, strict=True)]
    yield paint(_line(_HEADINGS, widths), bold=True)
    for row_cells, opportunities in zip(cells, findings, strict=True):
        yield _line(row_cells, widths)
        for opportunity in opportunities:
            yield f"    {_finding_line(opportunity, profile.mode, paint)}"


def _grouped(rows: Sequence[Row]) -> tuple[list[Row], list[Row], list[Row]]:
    """Return the rows that are shown, the small ones without findings, and what is outside of the
    model's files."""
    inside = [row for row in rows if row.definition is not None]
    plain = [row for row in inside if not row.opportunities]
    large = [row for row in plain if row.share >= _SMALLEST_SHARE][:_MOST_PLAIN_ROWS]
    with_findings = [row for row in inside if row.opportunities]
    small = [row for row in plain if row not in large]
    return with_findings + large, small, [row for row in rows if row.definition is None]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return a line of the table: two columns of words, and numbers."""
    words = [cell.ljust(width) for cell, width in zip(cells[:2], widths[:2], strict=True)]
    numbers = [cell.rjust(width) for cell, width in zip(cells[2:], widths[2:], strict=True)]
    return "  ".join((*words, *numbers)).rstrip()


def _cells(row: Row, profile: Profile) -> tuple[str, ...]:
    """Return the cells of a definition."""
    assert row.definition is not None
    return (
        row.definition.name,
        row.definition.place,
        _calls(row),
        *_amounts([row], profile),
        _part(row.saving) if row.is_expected_to_gain else "",
    )


def _calls(row: Row) -> str:
    """Return the number of calls in a step; "-" where only what is nested in the definition is
    called."""
    if not row.calls:
        return "-"
    return f"{row.calls:.0f}" if row.calls == int(row.calls) else f"{row.calls:.1f}"


def _amounts(rows: Iterable[Row], profile: Profile) -> tuple[str, str, str]:
    """Return the share of the time, the time, and the memory of rows together."""
    rows = list(rows)
    share = sum(row.share for row in rows)
    sizes = [row.bytes for row in rows if row.bytes is not None]
    return (
        f"{share:.1%}",
        _time(share * profile.seconds),
        _size(sum(sizes)) if sizes else "",
    )


def _finding_line(opportunity: Opportunity, mode: str, paint: Paint) -> str:
    """Return the line of a finding: its line, its rule, the share of its lines, and its worth."""
    finding, gain = opportunity.finding, opportunity.gain
    place = f"line {finding.start[0]}: {finding.rule.id}"
    if gain.speed is None:
        return f"{place}, not counted: {gain.reason}{_memory_words(gain)}"
    share = f"{opportunity.share:.1%} of the step"
    if opportunity.counted < opportunity.share:
        share += f" ({opportunity.counted:.1%} without lines that count for a rule that saves more)"
    worth = f"{_times(gain.speed)} times as fast where the rule was measured in {mode}"
    return paint(f"{place}, {share} in lines that became {worth}{_memory_words(gain)}", fg="green")


def _memory_words(gain: Gain) -> str:
    """Return what a rule leaves of the memory; "" where that is no gain."""
    return "" if gain.memory is None else f", with {gain.memory:.2g} times the memory"


def _notes(profile: Profile) -> Iterator[str]:
    """Yield what is not in the table."""
    slowdown = profile.profiled_seconds / profile.seconds - 1
    if slowdown > _LARGEST_SLOWDOWN:
        yield (
            f"being profiled makes the step {slowdown:.0%} slower, and most so where many short"
            " lines run: their shares are too large"
        )
    if profile.memory_note:
        yield f"memory: {profile.memory_note}"
    if profile.idle:
        places = ", ".join(
            f"{Path(finding.file).name}:{finding.start[0]} ({finding.rule.id})"
            for finding in profile.idle[:3]
        )
        number = count(len(profile.idle), "finding")
        ellipsis = ", …" * (len(profile.idle) > 3)
        yield f"{number} in code that this step does not run: {places}{ellipsis}"
    yield from (f"not scanned: {error}" for error in profile.errors)


def _expectation(profile: Profile, paint: Paint) -> Iterator[str]:
    """Yield what all findings are expected to gain, and what that assumes."""
    if profile.speed is None:
        yield (
            "no gain in time is expected: no rule that is measured to gain time in"
            f" {profile.mode} has a finding in this step"
        )
        return
    seconds = _time(profile.seconds * (1 - profile.saving.middle))
    yield paint(
        f"all counted rules together: {_times(profile.speed)} times as fast, {seconds} instead of"
        f" {_time(profile.seconds)} a step (expected, not measured: `regraft bench` measures it)",
        bold=True,
    )
    yield (
        "This assumes that the lines of each finding, with all that stands on them, gain what such"
        " lines gained in the modules on which Regraft measured the rule."
    )


def _part(saving: Range) -> str:
    """Return a saved part of the time in percent, with its bounds."""
    low, middle, high = (f"{part:.1%}" for part in (saving.low, saving.middle, saving.high))
    return middle if low == high else f"{middle} ({low[:-1]} to {high})"


def _times(speed: Range) -> str:
    """Return times as fast, with their bounds."""
    low, middle, high = (
        f"{number:.2f}" if number < 10 else f"{number:.0f}"
        for number in (speed.low, speed.middle, speed.high)
    )
    return middle if low == high else f"{middle} ({low}-{high})"


def _time(seconds: float) -> str:
    """Return seconds in s, ms or µs."""
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def _size(size: int) -> str:
    """Return bytes in MiB."""
    return f"{size / 2**20:.1f} MiB"


def as_json(profile: Profile, target: str) -> dict[str, Any]:
    """Return the profile as `report/schemas/profile.schema.json` states it."""
    return {
        "version": 1,
        "target": target,
        "regraft": __version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "model": profile.model,
        "mode": profile.mode,
        "device": profile.device,
        "machine": profile.machine,
        "clock": profile.clock,
        "seconds": profile.seconds,
        "profiled_seconds": profile.profiled_seconds,
        "steps": profile.steps,
        "peak_bytes": profile.peak_bytes,
        "memory_note": profile.memory_note,
        "definitions": [_row_json(row) for row in profile.rows],
        "not_run": [_finding_json(finding) for finding in profile.idle],
        "errors": list(profile.errors),
        "saving": _range_json(profile.saving),
        "expected_speed": None if profile.speed is None else _range_json(profile.speed),
        "candidates": list(profile.candidates),
    }


def _row_json(row: Row) -> dict[str, Any]:
    """Return a row; name, file and line are null for what is outside of the model's files."""
    definition = row.definition
    return {
        "name": definition and definition.name,
        "file": definition and definition.file,
        "line": definition and definition.line,
        "calls": row.calls,
        "share": row.share,
        "bytes_at_peak": row.bytes,
        "saving": _range_json(row.saving),
        "findings": [_opportunity_json(opportunity) for opportunity in row.opportunities],
    }


def _opportunity_json(opportunity: Opportunity) -> dict[str, Any]:
    """Return a finding with what it may gain."""
    gain = opportunity.gain
    return {
        **_finding_json(opportunity.finding),
        "share": opportunity.share,
        "counted": opportunity.counted,
        "speed": None if gain.speed is None else _range_json(gain.speed),
        "memory": gain.memory,
        "saving": _range_json(opportunity.saving),
        "not_counted": gain.reason,
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    """Return the place of a finding."""
    return {"rule": finding.rule.id, "file": finding.file, "line": finding.start[0]}


def _range_json(value: Range) -> dict[str, float]:
    """Return a range with its bounds."""
    return {"low": value.low, "middle": value.middle, "high": value.high}
