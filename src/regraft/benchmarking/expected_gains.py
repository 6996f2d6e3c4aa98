"""What the findings of rules are expected to gain, from their shares of a step and what the rules
gained where they were measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from regraft.benchmarking.line_timer import Location
from regraft.rules.worth import FASTER, SMALLER, Case, Worth
from regraft.scanning import Finding

# of the time of lines: what a module saved may be more than its lines took, by errors of both
_MOST_SAVED = 0.99


@dataclass(frozen=True, slots=True)
class Range:
    """A quantity with its bounds: low, middle and high."""

    low: float
    middle: float
    high: float

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.middle + other.middle, self.high + other.high)


NOTHING = Range(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Gain:
    """What a rule gained where it was measured in the mode of a profile.

    speed   how many times as fast the rewritten lines became: the low end of the worst case, the
            median of the medians, and the high end of the best case; None where nothing is expected
    reason  the reason why nothing is expected; "" where something is
    memory  the least part of the memory that is left in a case, where it counts as a gain
    hopeful  whether a measurement of the model may show a gain
    """

    speed: Range | None
    reason: str = ""
    memory: float | None = None
    hopeful: bool = True


@dataclass(frozen=True, slots=True)
class Opportunity:
    """A finding in a definition that ran, and what it may gain.

    share    the part of the step's time that its lines take
    counted  the part of the step's time that those of its lines take that no finding that saves
             more covers; 0 where nothing is expected
    saving   the part of the step's time that it is expected to save on these lines
    """

    finding: Finding
    gain: Gain
    share: float
    counted: float
    saving: Range


def gain_of(finding: Finding, mode: str) -> Gain:
    """Return what the rule of a finding gained in a mode, "inference" or "training"."""
    worth = finding.worth
    objection = worth.objection if worth is not None else ""
    is_withheld_by_worth = bool(objection) and finding.reason.startswith(objection)
    if finding.reason and not is_withheld_by_worth:
        return Gain(None, f"withheld: {finding.reason}", hopeful=False)
    if worth is None:
        return Gain(None, "a rule of yours, whose worth nobody has measured")
    if is_withheld_by_worth or worth.verdict in ("unknown", "gains nothing"):
        reason = "; ".join(filter(None, (objection, worth.advice)))
        return Gain(None, reason, hopeful=bool(worth.advice))
    return _gain_in_mode(worth, mode)


def _gain_in_mode(worth: Worth, mode: str) -> Gain:
    """Return what a rule that may gain gained in a mode."""
    cases = [case for case in worth.decisive if case.mode == mode]
    if not cases:
        return Gain(None, f"not measured in {mode} on {worth.target}")
    memory = min((case.memory for case in cases if case.memory <= SMALLER), default=None)
    if any(case.time[0] >= FASTER for case in cases):
        return Gain(_speed(cases), memory=memory)
    reason = f"gains no time in {mode} on {worth.target}"
    return Gain(None, reason, memory, hopeful=memory is not None)


def _speed(cases: Sequence[Case]) -> Range:
    """Return how many times as fast the lines of the cases became.

    A case measures a module of which these lines take a part of the time; what the module saves is
    theirs.
    """
    savings = [[saved_part(speed) / case.part for speed in case.time] for case in cases]
    return Range(
        *(
            1 / (1 - min(saving, _MOST_SAVED))
            for saving in (
                min(low for low, _, _ in savings),
                statistics.median(middle for _, middle, _ in savings),
                max(high for _, _, high in savings),
            )
        )
    )


def saved_part(speed: float) -> float:
    """Return the part of its time that code saves that becomes `speed` times as fast."""
    return 1 - 1 / speed


def speed_of_whole(saving: Range) -> Range:
    """Return how many times as fast a step becomes that saves a part of its time (Amdahl's
    law)."""
    return Range(1 / (1 - saving.low), 1 / (1 - saving.middle), 1 / (1 - saving.high))


def opportunities(
    lines_by_finding: Mapping[Finding, Iterable[int]],
    share_by_line: Mapping[Location, float],
    mode: str,
) -> list[Opportunity]:
    """Return what findings may gain, in their order, from the lines that their rewrites make
    faster.

    A line that several of them cover counts for the one that is expected to save most on its lines,
    so that no time is saved twice.
    """
    gains = [(finding, gain_of(finding, mode)) for finding in lines_by_finding]
    places = {
        finding: [(finding.file, line) for line in lines]
        for finding, lines in lines_by_finding.items()
    }
    shares = {
        finding: sum(share_by_line.get(place, 0.0) for place in its_places)
        for finding, its_places in places.items()
    }
    free = dict(share_by_line)
    counted: dict[Finding, float] = {}
    for finding, _ in sorted(
        ((finding, gain.speed) for finding, gain in gains if gain.speed is not None),
        key=lambda pair: -shares[pair[0]] * saved_part(pair[1].middle),
    ):
        counted[finding] = sum(free.pop(place, 0.0) for place in places[finding])
    return [
        Opportunity(
            finding,
            gain,
            shares[finding],
            counted.get(finding, 0.0),
            NOTHING if gain.speed is None else _saving(counted[finding], gain.speed),
        )
        for finding, gain in gains
    ]


def _saving(share: float, speed: Range) -> Range:
    """Return the part of a step's time that is saved where a part of it becomes `speed` times as
    fast."""
    return Range(*(share * saved_part(bound) for bound in (speed.low, speed.middle, speed.high)))
