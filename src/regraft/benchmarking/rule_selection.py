"""Choice of the rules to keep: the fastest subset under a memory limit, or the smallest under a
time limit."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from regraft.benchmarking.paired_measurement import Pair
from regraft.benchmarking.variants import NONE, Rules

SAVING = 0.01  # of the peak memory; a smaller saving is no gain

_UNITS = {
    "memory": {
        "B": 1,
        "kB": 1e3,
        "KB": 1e3,
        "KiB": 2**10,
        "MB": 1e6,
        "MiB": 2**20,
        "GB": 1e9,
        "GiB": 2**30,
    }
}
_UNITS["time"] = {"s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}


def limit(text: str, kind: Literal["memory", "time"]) -> tuple[float, bool]:
    """Parse a limit such as `2GiB`, `80ms` or `90%`.

    Returns bytes or seconds with False, or for percents the part of what the original needs with
    True. Raises ValueError for any other text.
    """
    quantity = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-zµ%]+)\s*", text)
    units = _UNITS[kind]
    if (
        quantity is None
        or (quantity[2] != "%" and quantity[2] not in units)
        or not 0 < float(quantity[1]) < math.inf
    ):
        raise ValueError(
            f"{text!r} is not a number above 0 with one of the units {', '.join(units)} or %"
        )
    if quantity[2] == "%":
        return float(quantity[1]) / 100, True
    return float(quantity[1]) * units[quantity[2]], False


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal of a choice; `at_most` limits bytes where the fastest subset is asked for, seconds
    for the smallest."""

    kind: Literal["fastest", "smallest"]
    at_most: float | None = None
    relative: bool = False  # whether `at_most` is a part of what the original needs


def goal_of(kind: Literal["fastest", "smallest"], at_most: str | None) -> Goal:
    """Return the goal with its limit as text, as in `limit`; None for no limit.

    Raises ValueError for another kind, and for a text that is no limit.
    """
    if kind not in ("fastest", "smallest"):
        raise ValueError(f"the goal is {kind!r}; there are fastest and smallest")
    unit: Literal["memory", "time"] = "memory" if kind == "fastest" else "time"
    return Goal(kind, *(limit(at_most, unit) if at_most is not None else ()))


class Meter(Protocol):
    """Measures the model as sets of rules rewrite it: times in pairs, and peak bytes.

    `pair` may return a measurement of the same comparison from before; `pairs` and
    `pairs_with_parts` measure anew.
    """

    def pair(self, new: Rules, old: Rules) -> Pair: ...
    def pairs(self, news: Sequence[Rules], old: Rules) -> list[Pair]: ...
    def pairs_with_parts(self, whole: Rules, parts: Sequence[Rules]) -> list[Pair]: ...
    def bytes(self, rules: Rules) -> int: ...


@dataclass(frozen=True, slots=True)
class Worth:
    """The worth of rules beside other ones: timings with and without them, and the bytes of
    both."""

    pair: Pair
    bytes: int
    bytes_without: int


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen rules and their worth.

    worth  the worth of each rule beside all the others
    whole  the worth of all rules against the original; None for no rules
    """

    rules: Rules
    worth: dict[str, Worth]
    whole: Worth | None


def choose(
    meter: Meter, names: Sequence[str], goal: Goal, say: Callable[[str], None] = lambda _: None
) -> Choice | None:
    """Return the rules to keep of `names`; None where no subset that was tried keeps the limit.

    The fastest without a limit starts with the rules that gain by themselves. Under a limit, and
    for the smallest, a rule is added while the result is better with it than without it. Then each
    is measured anew against all the others together, and those that are not better are dropped: all
    of them where that loses nothing, else the one of least worth. Better is: faster, with the whole
    interval above 1; or smaller by at least SAVING; or nearer to a limit that is not kept yet. All
    rules together are tried as well, for rules that only pay in company. The search is greedy: a
    subset of another kind may be better still.
    """
    search = _Search(meter, goal, say)
    has_no_limit = goal.kind == "fastest" and goal.at_most is None
    start = search.gaining(names) if has_no_limit else search.add_useful(names)
    chosen, worth = search.drop_useless(search.or_all(start, names))
    total_worth = search.worth(chosen, NONE) if chosen else None
    if total_worth is not None and not search.is_better(chosen, NONE, total_worth):
        chosen, worth, total_worth = NONE, {}, None
    return Choice(chosen, worth, total_worth) if search.keeps_limit(chosen, total_worth) else None


class _Search:
    """The measurements and comparisons of a search for the rules to keep."""

    def __init__(self, meter: Meter, goal: Goal, say: Callable[[str], None]) -> None:
        self.meter, self.goal, self.say = meter, goal, say
        self.at_most = goal.at_most
        if goal.at_most is not None and goal.relative and goal.kind == "fastest":
            self.at_most = goal.at_most * meter.bytes(NONE)

    def gaining(self, names: Sequence[str]) -> Rules:
        """Return the rules of `names` that make the original faster, each by itself."""
        return frozenset(name for name in names if self.is_better(frozenset({name}), NONE))

    def add_useful(self, names: Sequence[str]) -> Rules:
        """Return the rules of `names` that were added one by one while the result was better with
        each."""
        chosen: Rules = NONE
        previous: Rules | None = None
        while chosen != previous:
            previous = chosen
            for name in names:
                if name in chosen:
                    continue
                self.say(f"with {name}")
                if self.is_better(chosen | {name}, chosen):
                    chosen |= {name}
        return chosen

    def or_all(self, chosen: Rules, names: Sequence[str]) -> Rules:
        """Return all rules of `names` where they are better together than the chosen ones, else
        these."""
        all_rules = frozenset(names)
        self.say(f"all {len(all_rules)}, or {len(chosen)} of them")
        return all_rules if chosen != all_rules and self.is_better(all_rules, chosen) else chosen

    def drop_useless(self, chosen: Rules) -> tuple[Rules, dict[str, Worth]]:
        """Return those of the rules that are each better than none beside the others, and the worth
        of each."""
        while True:
            self.say(f"what each of {len(chosen)} adds")
            worth = self.worth_of_each(chosen)
            useless = frozenset(
                name
                for name, rule_worth in worth.items()
                if not self.is_better(chosen, chosen - {name}, rule_worth)
            )
            if not useless:
                return chosen, worth
            chosen -= self.to_drop(chosen, useless, worth)

    def to_drop(self, chosen: Rules, useless: Rules, worth: Mapping[str, Worth]) -> Rules:
        """Return all useless rules where the others are no worse without them, else the one of
        least worth: of two rules that do the same each is useless beside the other."""
        if len(useless) > 1:
            self.say(f"without {len(useless)} that add nothing")
            if not self.is_better(chosen, chosen - useless):
                return useless
        return frozenset({min(sorted(useless), key=lambda name: worth[name].pair.speed.median)})

    def worth_of_each(self, chosen: Rules) -> dict[str, Worth]:
        """Return the worth of each of the rules beside all the others, measured anew."""
        parts = {name: chosen - {name} for name in sorted(chosen)}
        if not parts:
            return {}
        pairs = self.meter.pairs_with_parts(chosen, list(parts.values()))
        return {
            name: Worth(pair, self.meter.bytes(chosen), self.meter.bytes(parts[name]))
            for name, pair in zip(parts, pairs, strict=True)
        }

    def worth(self, new: Rules, old: Rules) -> Worth:
        """Measure the rules `new` against the rules `old`, anew."""
        return Worth(self.meter.pairs([new], old)[0], self.meter.bytes(new), self.meter.bytes(old))

    def keeps_limit(self, rules: Rules, measured: Worth | None = None) -> bool:
        """Return whether rules keep the limit, over the whole interval of a time.

        measured: a comparison of the rules with the original, where there is one already.
        """
        if self.at_most is None:
            return True
        if self.goal.kind == "fastest":
            return self.meter.bytes(rules) <= self.at_most
        if self.goal.relative and not rules:
            return self.at_most >= 1  # a part of what the original itself needs
        pair = measured.pair if measured else self.meter.pair(rules, NONE)
        return (1 / pair.speed.low if self.goal.relative else pair.new.high) <= self.at_most

    def is_better(self, new: Rules, old: Rules, measured: Worth | None = None) -> bool:
        """Return whether `new` is better than `old`.

        measured: a comparison of the two, where there is one already.
        """

        def is_faster() -> bool:
            return (measured.pair if measured else self.meter.pair(new, old)).speed.low > 1

        def is_smaller() -> bool:
            return self.meter.bytes(new) <= (1 - SAVING) * self.meter.bytes(old)

        first, second = (
            (is_faster, is_smaller) if self.goal.kind == "fastest" else (is_smaller, is_faster)
        )
        return first() and self.keeps_limit(new) if self.keeps_limit(old) else second()
