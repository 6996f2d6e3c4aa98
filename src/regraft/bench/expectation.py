"""What the findings of rules are expected to gain, from their shares of a step and what the rules
gained where they were measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from regraft.bench.timeline import Location
from regraft.rules.worth import FASTER, SMALLER, Case
from regraft.scanning import Finding


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

    speed   times as fast: the low end of the worst case, the median of the medians, and the high
            end of the best case; None where nothing is expected
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

    share   the part of the step's time that its lines take
    saving  the part of the step's time that it is expected to save, on the lines that no better
            finding has
    """

    finding: Finding
    gain: Gain
    share: float
    saving: Range


def gain_of(finding: Finding, mode: str) -> Gain:
    """Return what the rule of a finding gained in a mode, "inference" or "training"."""
    worth = finding.worth
    is_useless = worth is not None and worth.verdict == "gains nothing"
    if finding.reason:
        can_be_measured = worth is not None and bool(worth.advice) and worth.objection in finding.reason
        return Gain(None, finding.reason, hopeful=can_be_measured)
    if worth is None:
        return Gain(None, "a rule of yours, whose worth nobody has measured")
    if worth.verdict == "unknown" or is_useless:
        return Gain(None, worth.objection, hopeful=not is_useless)
    cases = [case for case in worth.decisive if case.mode == mode]
    memory = min((case.memory for case in cases if case.memory <= SMALLER), default=None)
    if not cases:
        return Gain(None, f"not measured in {mode} on {worth.target}")
    if not any(case.time[0] >= FASTER for case in cases):
        reason = f"gains no time in {mode} on {worth.target}"
        return Gain(None, reason, memory, hopeful=memory is not None)
    return Gain(_speed(cases), memory=memory)


def _speed(cases: Sequence[Case]) -> Range:
    """Return how many times as fast the cases are together."""
    return Range(
        min(case.time[0] for case in cases),
        statistics.median(case.time[1] for case in cases),
        max(case.time[2] for case in cases),
    )


def saved_part(speed: Range) -> Range:
    """Return the part of its time that code saves that becomes `speed` times as fast."""
    return Range(1 - 1 / speed.low, 1 - 1 / speed.middle, 1 - 1 / speed.high)


def speed_of_whole(saving: Range) -> Range:
    """Return how many times as fast a step becomes that saves a part of its time (Amdahl's
    law)."""
    return Range(1 / (1 - saving.low), 1 / (1 - saving.middle), 1 / (1 - saving.high))


def opportunities(
    findings: Iterable[Finding], share_by_line: Mapping[Location, float], mode: str
) -> list[Opportunity]:
    """Return what findings may gain, in their order.

    A line that several of them cover counts for the one that is expected to save most there, so
    that no time is saved twice.
    """
    gains = [(finding, gain_of(finding, mode)) for finding in findings]
    free = dict(share_by_line)
    savings: dict[Finding, Range] = {}
    for finding, speed in sorted(
        ((finding, gain.speed) for finding, gain in gains if gain.speed is not None),
        key=lambda pair: -pair[1].middle,
    ):
        share = sum(free.pop(line, 0.0) for line in _lines(finding))
        part = saved_part(speed)
        savings[finding] = Range(share * part.low, share * part.middle, share * part.high)
    return [
        Opportunity(
            finding,
            gain,
            sum(share_by_line.get(line, 0.0) for line in _lines(finding)),
            savings.get(finding, NOTHING),
        )
        for finding, gain in gains
    ]


def _lines(finding: Finding) -> Iterable[Location]:
    """Return the lines that a finding covers."""
    return ((finding.file, line) for line in dict.fromkeys(finding.lines))
