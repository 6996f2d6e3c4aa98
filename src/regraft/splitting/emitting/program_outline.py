"""The outline of a split network: its regions, decisions, loops and host statements, nested as in
the program, and facts about each region. Everything is ready for JSON."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from regraft.splitting.program.residual import (
    Branch,
    HostStep,
    Loop,
    Region,
    RegionStep,
    Step,
    TensorStep,
)
from regraft.splitting.program.residual_expressions import file_of_wrapped
from regraft.splitting.program.statements import write_statement

_SHOWN = 200  # characters of a host statement


def outline_of(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Return an entry for each step of a program, in order, whose `kind` is one of these.

    "region": its `number`. "decision": its `place` (file:line) and its `sides`, each with the
    `condition` on which it is taken, its `number` among the network's sides (-1 for one that only
    raises or leaves out an operand) and its `steps`. "loop": what it goes over, as text, "" where
    it ends by a decision, and its `steps`. "host": the `text` of a statement that the host runs.
    """
    return list(_entries(steps))


def _sides(branch: Branch) -> list[dict[str, Any]]:
    """Return a dictionary for each side of a branch: its "condition", "number" and "steps"."""
    return [
        {"condition": label, "number": number, "steps": outline_of(body)}
        for label, number, (_, body) in zip(branch.labels, branch.numbers, branch.arms, strict=True)
    ]


def _entries(steps: Sequence[Step]) -> Iterator[dict[str, Any]]:
    """Yield a dictionary for each step: its "kind", and for a region "number", for a decision
    "place" and "sides", for a loop "header" and "steps", for any other step "text"."""
    for step in steps:
        if isinstance(step, RegionStep):
            yield {"kind": "region", "number": step.number}
        elif isinstance(step, Branch):
            place = f"{step.path}:{step.line}"
            yield {"kind": "decision", "place": place, "sides": _sides(step)}
        elif isinstance(step, Loop):
            header = "" if step.header is None else _loop_text(*step.header)
            yield {"kind": "loop", "header": header, "steps": outline_of(step.body)}
        else:
            yield {"kind": "host", "text": _statement_text(step)}


def _loop_text(target: str, values: ast.expr) -> str:
    """Return what a loop goes over as source, such as `for x in range(3)`."""
    return _shortened(f"for {target} in {ast.unparse(values)}")


def _statement_text(step: HostStep | TensorStep) -> str:
    """Return a statement as source."""
    return _shortened(write_statement(step.statement))


def _shortened(text: str) -> str:
    """Return at most `_SHOWN` characters of a text."""
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def lines_of(region: Region) -> list[str]:
    """Return the lines that a region was made of, as `file:3,5-7` for each file in the order in
    which its statements come from them; those of a network that is made around the original (its
    states are arguments) are left out."""
    lines_by_file: dict[str, set[int]] = {}
    for path, line in region.places:
        if path == file_of_wrapped(path):
            lines_by_file.setdefault(path, set()).add(line)
    return [f"{path}:{ranges_text(sorted(lines))}" for path, lines in lines_by_file.items()]


def ranges_text(numbers: Sequence[int]) -> str:
    """Return ascending numbers as text in which runs are shortened, such as `3,5-7`."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def region_facts(
    regions: Sequence[Region], entries: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return facts about each region: its `number`, `place` (file:line of its first statement), the
    `lines` of all of its statements (a list of `file:3,5-7`, one for each file), number of
    `operations`, `inputs` and `outputs` (each with name, type and shape, null for an open size),
    `limits` (conditions on sizes), `island` (why torch runs it, "" where the compiler's engine
    does), and `seconds`: of the compiled region and of torch on its largest sample with one thread,
    null where they were not timed.

    entries: the regions' entries in the manifest.
    """
    return [
        {
            "number": region.number,
            "place": f"{region.place[0]}:{region.place[1]}",
            "lines": lines_of(region),
            "operations": len(region.statements),
            "inputs": entry["inputs"],
            "outputs": entry["outputs"],
            "limits": region.limits,
            "island": entry.get("reason", ""),
            "seconds": region.seconds,
        }
        for region, entry in zip(regions, entries, strict=True)
    ]
