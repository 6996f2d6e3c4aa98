"""Options and results of a benchmark, and what follows it while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from regraft.benchmarking.paired_measurement import Pair
from regraft.benchmarking.rule_selection import Choice, Goal
from regraft.configuration import Settings as Project


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a benchmark.

    modes       "inference", "training" or both
    rounds      the most pairs in each comparison, which ends earlier where it is decided
    compile     whether to compare with torch.compile
    liger       whether to compare with Liger's own patch
    verify      whether to verify the rules first
    project     the settings of the project, of which those count that are about rules in files and
                about proofs
    goal        the goal by which to choose rules; None for no choice
    """

    modes: tuple[str, ...] = ("inference",)
    rounds: int = 20
    compile: bool = False
    liger: bool = False
    verify: bool = True
    project: Project = field(default_factory=Project)
    goal: Goal | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A comparison of a variant of the model with another one.

    mode                  "inference" or "training"
    name, against         the labels of the two
    rules                 the ids of the rules of the variant
    pair                  the times of both
    bytes, bytes_against  the peak memory of both
    differs               how the results differ; "" where they are equal
    is_complete           whether it was measured to the end
    """

    mode: str
    name: str
    against: str
    rules: tuple[str, ...]
    pair: Pair
    bytes: int
    bytes_against: int
    differs: str = ""
    is_complete: bool = True


@dataclass(slots=True)
class Result:
    """The result of a benchmark.

    left         the places that no rule rewrites, with reasons
    limit_kept   whether a choice keeps the goal's limit
    chosen       the chosen rules; None without a choice
    notes        how the rules are proved, and what else readers of the table have to know
    interrupted  the activity that Ctrl-C ended; "" where nothing did
    """

    model: str
    device: str
    machine: str
    clock: str
    rows: list[Row] = field(default_factory=list)
    left: tuple[str, ...] = ()
    limit_kept: bool = True
    chosen: Choice | None = None
    notes: tuple[str, ...] = ()
    interrupted: str = ""


class Observer(Protocol):
    """Follows a benchmark while it runs."""

    def begin(self, activity: str) -> None:
        """Note what the benchmark does from now on."""

    def count(self, measured: int, total: int) -> None:
        """Note how many pairs the activity has measured, of how many at most."""

    def start_table(self, result: Result, labels: Sequence[str]) -> None:
        """Note the result before its first row, and the labels of all rows to come."""

    def add_row(self, row: Row) -> None:
        """Note a row as soon as it is measured."""


class Silence:
    """An observer that does nothing."""

    def begin(self, activity: str) -> None: ...
    def count(self, measured: int, total: int) -> None: ...
    def start_table(self, result: Result, labels: Sequence[str]) -> None: ...
    def add_row(self, row: Row) -> None: ...


def label_of(name: str, against: str) -> str:
    """Return the label of a comparison, with what it is compared with unless that is the
    original."""
    return name if against == "original" else f"{name}, against {against}"
