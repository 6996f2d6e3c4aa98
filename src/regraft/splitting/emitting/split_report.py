"""The report of a split: its parts, and the results of its check."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regraft.report.split_text import split_text

FORMAT = 1  # of manifests and of the metadata of single files


def check_format(facts: object, path: Path) -> None:
    """Raise ValueError where what a file says of a split network is not in the format of this
    version of Regraft."""
    number = facts.get("format") if isinstance(facts, dict) else None
    if type(number) is not int or number != FORMAT:
        raise ValueError(
            f"{path}: format {number!r} is unknown, this version of Regraft reads format {FORMAT}:"
            " split the network again"
        )


@dataclass(frozen=True)
class Report:
    """The parts of a split, and the results of its check.

    subnetworks: their number. models: different structures among them, each compiled once. islands:
    the reasons of the sub-networks that torch runs. sides, sides_run: the number of sides of
    decisions, and of those that checked inputs took. unseen: sides that no input took, where the
    host raises. inputs_checked: the number of inputs of equal decisions and results. at_threshold:
    inputs that the split network decides differently, where the value compared lies at its
    threshold. seconds: the time of the whole build. one_by_one: places of the sub-networks that a
    batch runs through sample by sample. rounding: inputs whose results differ by no more than those
    of the original do where its weights are rounded differently. not_left: attributes of modules
    that a call of the original leaves behind; here they are variables of the call. analysis:
    seconds until the sub-networks were known. outline, regions: the parts nested as in the program,
    and facts about each region (`program_outline.py`). sides_taken: the numbers of the sides that
    were run. left_out: a sentence for each call that only says something, such as `print`, which
    the split network does not repeat. times: the seconds of a call of the split network and of the
    original, on the example calls and this machine; None where they were not measured. compilers:
    where the fastest one was to be found, each with its name, the `seconds` of a call, and the
    `reason` for which the network could not be split with it. listed_sizes: a sentence for each
    list of sizes, outside of which the split network raises. carried: attributes of modules that a
    call leaves to the next one, which the split network keeps, too.
    """

    subnetworks: int
    models: int
    islands: tuple[str, ...]
    sides: int
    sides_run: int
    unseen: tuple[str, ...]
    inputs_checked: int
    at_threshold: tuple[str, ...]
    seconds: float
    one_by_one: tuple[str, ...] = ()
    rounding: tuple[str, ...] = ()
    not_left: tuple[str, ...] = ()
    analysis: float = 0.0
    outline: tuple[dict[str, Any], ...] = ()
    regions: tuple[dict[str, Any], ...] = ()
    sides_taken: tuple[int, ...] = ()
    left_out: tuple[str, ...] = ()
    times: tuple[float, float] | None = None
    compilers: tuple[dict[str, Any], ...] = ()
    listed_sizes: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the report as text, with a table of the regions."""
        return split_text(dataclasses.asdict(self))
