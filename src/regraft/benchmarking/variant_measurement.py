"""The measurement of variants of a model in a mode, each prepared once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regraft.benchmarking.median_intervals import Interval, gain_is_settled, is_decided
from regraft.benchmarking.options_and_results import Observer, Row, label_of
from regraft.benchmarking.paired_measurement import Pair, Race
from regraft.benchmarking.steps import Call, Prepared, Step, prepare_with_peak, step
from regraft.benchmarking.variants import LIGER, NONE, SDPA, Rules, Variants

Variant = tuple[Rules, bool]  # the rules of a variant, and whether it is compiled


ORIGINAL: Variant = (NONE, False)


COMPILED: Variant = (NONE, True)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of two variants that becomes a row of the table, with the fields of `Row`."""

    name: str
    new: Variant
    old: Variant = ORIGINAL
    against: str = "original"
    differs: str = ""

    @property
    def label(self) -> str:
        """The label in the table."""
        return label_of(self.name, self.against)

    @property
    def is_of_rules(self) -> bool:
        """Whether it compares rules with the original, so that only a gain is of interest."""
        return self.old == ORIGINAL and not self.new[1] and not self.new[0] & (LIGER | SDPA)


class Meter:
    """Measures variants of one model in one mode."""

    def __init__(
        self,
        variants: Variants,
        calls: Sequence[Call],
        mode: str,
        rounds: int,
        device: torch.device,
        observer: Observer,
    ) -> None:
        self.variants, self.calls, self.mode, self.rounds, self.device = (
            variants,
            calls,
            mode,
            rounds,
            device,
        )
        self.observer = observer
        self._prepared: dict[Variant, tuple[Prepared, int]] = {}
        self._compiled: dict[Rules, Any] = {}
        self._pair_by_variants: dict[tuple[Variant, Variant], Pair] = {}

    def pair(self, new: Rules, old: Rules) -> Pair:
        """Compare two variants; the pair of the same comparison before, where there is one."""
        earlier = self._pair_by_variants.get(((new, False), (old, False)))
        return earlier if earlier is not None else self.pairs([new], old)[0]

    def pairs(self, news: Sequence[Rules], old: Rules) -> list[Pair]:
        """Compare several variants with the same one, all anew."""
        return self._race([(new, False) for new in news], (old, False), gain_is_settled)

    def pairs_with_parts(self, whole: Rules, parts: Sequence[Rules]) -> list[Pair]:
        """Compare a variant with several others, all anew; it is the `new` one of each pair."""

        def is_enough(speed: Interval) -> bool:
            return gain_is_settled(speed.inverse())

        pairs = self._race([(part, False) for part in parts], (whole, False), is_enough)
        return [pair.inverse() for pair in pairs]

    def bytes(self, rules: Rules) -> int:
        """Return the peak bytes of a variant, measured once."""
        return self._prepare((rules, False))[1]

    def measure(self, comparisons: Sequence[Comparison]) -> None:
        """Make comparisons with the same other variant, and hand each row to the observer as soon
        as it is measured; where Ctrl-C ends that, also the rows that have an interval already."""
        by_variant = {comparison.new: comparison for comparison in comparisons}
        reported: set[Variant] = set()

        def report(new: Variant, pair: Pair, is_complete: bool = True) -> None:
            reported.add(new)
            self.observer.add_row(self._row(by_variant[new], pair, is_complete))

        old = comparisons[0].old
        is_enough = gain_is_settled if comparisons[0].is_of_rules else is_decided
        race = self._start_race(list(by_variant), old, is_enough)
        try:
            race.run(report, self.observer.count)
        except KeyboardInterrupt:
            for new, pair in race.pairs().items():
                if new not in reported:
                    report(new, pair, False)
            raise
        self._pair_by_variants.update({(new, old): pair for new, pair in race.pairs().items()})

    def _race(
        self, news: Sequence[Variant], old: Variant, is_enough: Callable[[Interval], bool]
    ) -> list[Pair]:
        """Compare variants with the same one until `is_enough` accepts each, and keep the pairs."""
        race = self._start_race(news, old, is_enough)
        race.run(on_progress=self.observer.count)
        pairs = race.pairs()
        self._pair_by_variants.update({(new, old): pair for new, pair in pairs.items()})
        return [pairs[new] for new in news]

    def _start_race(
        self, news: Sequence[Variant], old: Variant, is_enough: Callable[[Interval], bool]
    ) -> Race:
        """Return a race of variants that are warm."""
        for variant in (old, *news):
            self._prepare(variant)
        for rules, _ in (old, *news):  # preparing or comparing others may have left another mode
            self.variants[rules].train(self.mode == "training")
        steps = {new: self._prepared[new][0] for new in news}
        return Race(self._prepared[old][0], steps, self.rounds, self.device, is_enough=is_enough)

    def _prepare(self, variant: Variant) -> tuple[Prepared, int]:
        """Return a variant's step, warm, and its peak bytes; both are made once."""
        if variant not in self._prepared:
            run_step = self._step(*variant)
            self._prepared[variant] = prepare_with_peak(run_step, self.device, compiled=variant[1])
        return self._prepared[variant]

    def _row(self, comparison: Comparison, pair: Pair, is_complete: bool) -> Row:
        """Return the row of a comparison."""
        rules = comparison.new[0] - LIGER - SDPA
        sizes = self._prepared[comparison.new][1], self._prepared[comparison.old][1]
        return Row(
            self.mode,
            comparison.name,
            comparison.against,
            tuple(sorted(rules)),
            pair,
            *sizes,
            comparison.differs,
            is_complete,
        )

    def _step(self, rules: Rules, compiled: bool) -> Step:
        """Return the step of a variant in this meter's mode."""
        model = self.variants[rules].train(self.mode == "training")
        if compiled:
            model = self._compiled.setdefault(rules, torch.compile(model))
        return step(model, self.calls, self.mode == "training")
