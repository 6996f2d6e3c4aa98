"""Test the choice of rules on costs that are set by the test."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

pytest.importorskip("torch")

from regraft.benchmarking.median_intervals import Interval
from regraft.benchmarking.paired_measurement import Pair
from regraft.benchmarking.rule_selection import Goal, choose, limit
from regraft.benchmarking.variants import NONE, Rules


class InventedMeter:
    """A meter with invented costs: seconds and bytes of each subset; times are uncertain by
    `noise`."""

    def __init__(
        self, seconds: Callable[[Rules], float], size: Callable[[Rules], int], noise: float = 0.02
    ) -> None:
        self.seconds, self.size, self.noise = seconds, size, noise

    def pair(self, new: Rules, old: Rules) -> Pair:
        before, after = self.seconds(old), self.seconds(new)
        return Pair(self._around(before), self._around(after), self._around(before / after))

    def pairs(self, news: Sequence[Rules], old: Rules) -> list[Pair]:
        return [self.pair(new, old) for new in news]

    def pairs_with_parts(self, whole: Rules, parts: Sequence[Rules]) -> list[Pair]:
        return [self.pair(whole, part) for part in parts]

    def bytes(self, rules: Rules) -> int:
        return self.size(rules)

    def _around(self, value: float) -> Interval:
        return Interval(value * (1 - self.noise), value, value * (1 + self.noise))


def product(factors: dict[str, float], start: float) -> Callable[[Rules], float]:
    """Return a cost that is a start value times the factors of the rules."""

    def cost(rules: Rules) -> float:
        value = start
        for rule in rules:
            value *= factors.get(rule, 1.0)
        return value

    return cost


def chosen(meter: InventedMeter, goal: Goal, names: str = "abcd") -> str | None:
    """Return the letters of the chosen rules; None where no choice is possible."""
    choice = choose(meter, tuple(names), goal)
    return None if choice is None else "".join(sorted(choice.rules))


FASTEST, SMALLEST = Goal("fastest"), Goal("smallest")


def test_what_is_faster_stays_and_nothing_else_does() -> None:
    meter = InventedMeter(product({"a": 0.5, "b": 0.99, "c": 1.3, "d": 0.9}, 1.0), lambda _: 100)
    choice = choose(meter, tuple("abcd"), FASTEST)
    assert choice is not None and choice.rules == {"a", "d"}  # the interval of b includes no gain
    assert {name: round(gain.pair.speed.median, 2) for name, gain in choice.worth.items()} == {
        "a": 2.0,
        "d": 1.11,
    }
    assert choice.whole is not None and choice.whole.pair.speed.median == pytest.approx(1 / 0.45)


def test_no_rule_pays() -> None:
    choice = choose(
        InventedMeter(product({"a": 1.01, "b": 0.99}, 1.0), lambda _: 100), tuple("ab"), FASTEST
    )
    assert choice is not None and choice.rules == NONE and choice.whole is None and not choice.worth


def test_a_rule_that_another_one_makes_useless_goes() -> None:
    def seconds(rules: Rules) -> float:
        return 0.5 if "b" in rules else 0.8 if "a" in rules else 1.0

    assert chosen(InventedMeter(seconds, lambda _: 100), FASTEST) == "b"


def test_rules_that_only_pay_together_are_found() -> None:
    def seconds(rules: Rules) -> float:
        return 0.5 if rules >= {"a", "c"} else 1.0

    assert chosen(InventedMeter(seconds, lambda _: 100), FASTEST) == "ac"


def test_the_fastest_under_a_memory_limit() -> None:
    seconds = product({"a": 0.5, "b": 0.8, "c": 1.1}, 1.0)
    size = {"a": 60, "b": 10, "c": -50}

    def total(rules: Rules) -> int:
        return 100 + sum(size.get(rule, 0) for rule in rules)

    meter = InventedMeter(seconds, total)
    assert chosen(meter, FASTEST) == "ab"
    assert chosen(meter, Goal("fastest", 115)) == "b"
    assert chosen(meter, Goal("fastest", 1.15, relative=True)) == "b"
    assert chosen(meter, Goal("fastest", 120)) == "abc"  # what c saves makes room for a
    assert (
        chosen(meter, Goal("fastest", 90)) == "bc"
    )  # the original itself is over the limit: c pays in memory
    assert chosen(meter, Goal("fastest", 40)) is None


def test_the_smallest_under_a_time_limit() -> None:
    seconds = product({"a": 1.5, "b": 0.9}, 1.0)
    size = {"a": -50, "c": -20, "d": 0}

    def total(rules: Rules) -> int:
        return 100 + sum(size.get(rule, 0) for rule in rules)

    meter = InventedMeter(seconds, total)
    assert chosen(meter, SMALLEST) == "ac"
    assert chosen(meter, Goal("smallest", 1.2)) == "c"
    assert chosen(meter, Goal("smallest", 1.2, relative=True)) == "c"
    assert (
        chosen(meter, Goal("smallest", 1.0, relative=True), "ad") == ""
    )  # the original keeps it, whatever the noise
    assert chosen(meter, Goal("smallest", 0.95, relative=True)) == "bc"  # too slow without b
    assert chosen(meter, Goal("smallest", 0.95)) == "bc"
    assert chosen(meter, Goal("smallest", 0.5)) is None


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("2GiB", "memory", (2 * 2**30, False)),
        ("1.5 MB", "memory", (1.5e6, False)),
        ("90%", "memory", (0.9, True)),
        ("80ms", "time", (0.08, False)),
        ("2s", "time", (2.0, False)),
        ("110 %", "time", (1.1, True)),
    ],
)
def test_limits_as_they_are_written(text: str, kind: str, expected: tuple[float, bool]) -> None:
    assert limit(text, kind) == pytest.approx(expected)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "memory"),
        ("2", "memory"),
        ("GiB", "memory"),
        ("-1GB", "memory"),
        ("2s", "memory"),
        ("0ms", "time"),
        ("1GiB", "time"),
        ("1e3s", "time"),
    ],
)
def test_limits_that_mean_nothing(text: str, kind: str) -> None:
    with pytest.raises(ValueError, match="is not a number above 0"):
        limit(text, kind)  # type: ignore[arg-type]


class CountingMeter(InventedMeter):
    """A meter that notes the comparisons it is asked for."""

    def __init__(self, seconds: Callable[[Rules], float]) -> None:
        super().__init__(seconds, lambda _: 100)
        self.known: list[tuple[Rules, Rules]] = []
        self.anew: list[tuple[Rules, Rules]] = []

    def pair(self, new: Rules, old: Rules) -> Pair:
        self.known.append((new, old))
        return super().pair(new, old)

    def pairs(self, news: Sequence[Rules], old: Rules) -> list[Pair]:
        self.anew += [(new, old) for new in news]
        return [super(CountingMeter, self).pair(new, old) for new in news]

    def pairs_with_parts(self, whole: Rules, parts: Sequence[Rules]) -> list[Pair]:
        self.anew += [(whole, part) for part in parts]
        return [super(CountingMeter, self).pair(whole, part) for part in parts]


def test_the_table_serves_the_search_and_the_chosen_ones_are_measured_anew() -> None:
    meter = CountingMeter(product({"a": 0.5, "d": 0.9}, 1.0))
    assert chosen(meter, FASTEST) == "ad"
    whole = frozenset("ad")
    singles = [(frozenset(name), NONE) for name in "abcd"]
    assert meter.known == [*singles, (frozenset("abcd"), whole)]
    assert meter.anew == [
        (whole, frozenset("d")),
        (whole, frozenset("a")),
        (whole, NONE),
    ]


def test_useless_rules_are_dropped_together_where_that_loses_nothing() -> None:
    def seconds(rules: Rules) -> float:
        return 0.5 if rules >= {"a", "c"} else 1.0

    meter = CountingMeter(seconds)
    assert chosen(meter, FASTEST) == "ac"
    assert (frozenset("abcd"), frozenset("ac")) in meter.known
    assert len(meter.anew) == 4 + 2 + 1
