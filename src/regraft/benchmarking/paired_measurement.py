"""Time and peak memory of steps, compared in pairs that run directly one after the other in one
process."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from regraft.benchmarking.median_intervals import FEWEST, Interval, interval
from regraft.benchmarking.steps import SLICE, Prepared, Step, prepare, seconds_of
from regraft.source.garbage_collection import uncollected


@dataclass(frozen=True, slots=True)
class Pair:
    """Two steps, measured in turn: the seconds of each, and `speed`, how many times as fast `new`
    is (old ÷ new)."""

    old: Interval
    new: Interval
    speed: Interval

    def inverse(self) -> Pair:
        """Return the same measurements with the two steps exchanged."""
        return Pair(self.new, self.old, self.speed.inverse())


def compare(
    old: Step,
    new: Step,
    rounds: int,
    device: torch.device,
    *,
    is_enough: Callable[[Interval], bool] = lambda _: False,
    slice_seconds: float = SLICE,
) -> Pair:
    """Measure two steps in `rounds` pairs, which start with either step in turn; the seconds are
    those of one step.

    It ends earlier, after FEWEST rounds or later, when `is_enough` accepts the interval of the
    speed. A shorter step is repeated until a measurement takes `slice_seconds`.
    """
    steps = [prepare(run_step, device, slice_seconds) for run_step in (old, new)]
    race = Race(steps[0], {"": steps[1]}, rounds, device, is_enough=is_enough)
    race.run()
    return race.pairs()[""]


class Race:
    """Comparisons of several steps with the same other one, `old`, in rounds.

    In each round every step that is not settled is measured directly before or directly after
    `old`, in the next round the other way round. One measurement of `old` serves the two steps
    beside it. A step is settled when `is_enough` accepts the interval of its speed, after FEWEST
    rounds or later, or after `rounds` of them.
    """

    def __init__(
        self,
        old: Prepared,
        steps: Mapping[Any, Prepared],
        rounds: int,
        device: torch.device,
        *,
        is_enough: Callable[[Interval], bool],
    ) -> None:
        self._old, self._rounds, self._device, self._is_enough = old, rounds, device, is_enough
        runners = [_Runner(name, prepared) for name, prepared in steps.items()]
        self._groups = [tuple(runners[start : start + 2]) for start in range(0, len(runners), 2)]

    def run(
        self,
        on_settled: Callable[[Any, Pair], None] = lambda *_: None,
        on_progress: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        """Measure until all steps are settled.

        on_settled   gets the name and the pair of each step as soon as it is settled
        on_progress  gets the number of pairs measured so far, and the most that there will be
        """
        gc.collect()
        with uncollected():
            for round_number in range(self._rounds):
                for group in self._groups:
                    self._measure(group, round_number)
                    on_progress(*self._count())
                    for runner in group:
                        if not runner.is_settled and self._settles(runner):
                            runner.is_settled = True
                            on_settled(runner.name, runner.pair())

    def pairs(self) -> dict[Any, Pair]:
        """Return the pairs of the steps by name, of those with FEWEST measurements or more."""
        return {
            runner.name: runner.pair()
            for group in self._groups
            for runner in group
            if len(runner.seconds) >= FEWEST
        }

    def _measure(self, group: tuple[_Runner, ...], round_number: int) -> None:
        """Measure the steps of a group that are not settled, each beside `old`."""
        before, after = group[0], group[1] if len(group) > 1 else None
        order: list[_Runner | None] = [before, None, after]  # None in the middle stands for `old`
        if round_number % 2:
            order.reverse()
        first, last = (
            runner if runner is not None and not runner.is_settled else None
            for runner in (order[0], order[2])
        )
        if first is None and last is None:
            return
        first_seconds = seconds_of(first.prepared, self._device) if first is not None else 0.0
        old_seconds = seconds_of(self._old, self._device)
        if first is not None:
            first.seconds.append((old_seconds, first_seconds))
        if last is not None:
            last.seconds.append((old_seconds, seconds_of(last.prepared, self._device)))

    def _settles(self, runner: _Runner) -> bool:
        """Return whether a step needs no further pairs."""
        count = len(runner.seconds)
        return count >= self._rounds or (count >= FEWEST and self._is_enough(runner.pair().speed))

    def _count(self) -> tuple[int, int]:
        """Return the number of pairs measured so far, and the most that there will be."""
        runners = [runner for group in self._groups for runner in group]
        measured = sum(len(runner.seconds) for runner in runners)
        waiting = sum(
            self._rounds - len(runner.seconds) for runner in runners if not runner.is_settled
        )
        return measured, measured + waiting


@dataclass(slots=True)
class _Runner:
    """A step in a race, with the seconds of `old` and of the step in each of its pairs."""

    name: Any
    prepared: Prepared
    seconds: list[tuple[float, float]] = field(default_factory=list)
    is_settled: bool = False

    def pair(self) -> Pair:
        """Return the intervals of the pairs so far."""
        return Pair(
            interval([old for old, _ in self.seconds]),
            interval([new for _, new in self.seconds]),
            interval([old / new for old, new in self.seconds]),
        )
