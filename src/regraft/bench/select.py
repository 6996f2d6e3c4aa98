"""Which rules to keep: the subset that is fastest under a memory limit, or smallest under a time limit."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from regraft.bench.measure import Pair
from regraft.bench.variants import NONE, Rules

SAVING = 0.01  # of the peak memory; less is no gain

_UNITS = {"memory": {"B": 1, "kB": 1e3, "KB": 1e3, "KiB": 2**10, "MB": 1e6, "MiB": 2**20, "GB": 1e9, "GiB": 2**30}}
_UNITS["time"] = {"s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}


def limit(text: str, kind: Literal["memory", "time"]) -> tuple[float, bool]:
    """A limit as written, `2GiB`, `80ms` or `90%`: in bytes or seconds, or (True) in parts of the original's.

    Raises ValueError for anything else.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-zµ%]+)\s*", text)
    units = _UNITS[kind]
    if found is None or (found[2] != "%" and found[2] not in units) or float(found[1]) == 0:
        raise ValueError(f"{text!r} is not a number above 0 with one of the units {', '.join(units)} or %")
    if found[2] == "%":
        return float(found[1]) / 100, True
    return float(found[1]) * units[found[2]], False


@dataclass(frozen=True, slots=True)
class Goal:
    """What to look for; `at_most` limits bytes where the fastest subset is asked for, seconds for the smallest."""

    kind: Literal["fastest", "smallest"]
    at_most: float | None = None
    relative: bool = False  # to what the original needs


class Meter(Protocol):
    def pair(self, new: Rules, old: Rules) -> Pair: ...
    def bytes(self, rules: Rules) -> int: ...


@dataclass(frozen=True, slots=True)
class Worth:
    """What a rule adds to other ones: timings with and without it, and the bytes of both."""

    pair: Pair
    bytes: int
    bytes_without: int


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen rules, what each adds to all the others, and all of them (None for none) to the original."""

    rules: Rules
    worth: dict[str, Worth]
    whole: Worth | None


def choose(
    meter: Meter, names: Sequence[str], goal: Goal, say: Callable[[str], None] = lambda _: None
) -> Choice | None:
    """The rules to keep of `names`; None where no subset that was looked at keeps the limit.

    A rule is added while that is better than without it. Then each is measured anew against all the others together,
    and those that are not better are dropped one by one, the one of least worth first. Better is: faster, with the
    whole interval above 1; or smaller by at least SAVING; or nearer to a limit that is not kept yet. All rules
    together are tried as well, for those that only pay in company. The search is greedy: a subset of another kind may
    be better still.
    """
    search = _Search(meter, goal)
    chosen: Rules = NONE
    added = True
    while added:
        added = False
        for name in (one for one in names if one not in chosen):
            say(f"with {name}")
            if search.better(chosen | {name}, chosen):
                chosen, added = chosen | {name}, True
    everything = frozenset(names)
    if chosen != everything and search.better(everything, chosen):
        chosen = everything
    while True:
        say(f"what each of {len(chosen)} adds")
        worth = {name: search.worth(chosen, chosen - {name}) for name in sorted(chosen)}
        idle = [name for name, one in worth.items() if not search.better(chosen, chosen - {name}, one)]
        if not idle:
            break
        chosen -= {min(idle, key=lambda name: worth[name].pair.speed.median)}
    whole = search.worth(chosen, NONE) if chosen else None
    if whole is not None and not search.better(chosen, NONE, whole):
        chosen, worth, whole = NONE, {}, None
    return Choice(chosen, worth, whole) if search.kept(chosen, whole) else None


class _Search:
    def __init__(self, meter: Meter, goal: Goal) -> None:
        self.meter, self.goal = meter, goal
        self.at_most = goal.at_most
        if goal.at_most is not None and goal.relative and goal.kind == "fastest":
            self.at_most = goal.at_most * meter.bytes(NONE)

    def worth(self, new: Rules, old: Rules) -> Worth:
        return Worth(self.meter.pair(new, old), self.meter.bytes(new), self.meter.bytes(old))

    def kept(self, rules: Rules, known: Worth | None = None) -> bool:
        """The limit is kept, by the whole interval."""
        if self.at_most is None:
            return True
        if self.goal.kind == "fastest":
            return self.meter.bytes(rules) <= self.at_most
        if self.goal.relative and not rules:
            return self.at_most >= 1  # of what it needs itself
        pair = known.pair if known else self.meter.pair(rules, NONE)
        return (1 / pair.speed.low if self.goal.relative else pair.new.high) <= self.at_most

    def better(self, new: Rules, old: Rules, known: Worth | None = None) -> bool:
        """Whether `new` is better than `old`, by a comparison of the two that is known already, or by a new one."""

        def faster() -> bool:
            return (known.pair if known else self.meter.pair(new, old)).speed.low > 1

        def smaller() -> bool:
            return self.meter.bytes(new) <= (1 - SAVING) * self.meter.bytes(old)

        first, second = (faster, smaller) if self.goal.kind == "fastest" else (smaller, faster)
        return first() and self.kept(new) if self.kept(old) else second()
