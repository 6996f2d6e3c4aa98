"""The worth of built-in rules: time and memory of their rewrites, measured on typical code.

`packs/PACK/worth.json` holds the measurements, which `benchmarks/worth/rules.py` writes: for each
rule and device some cases (a size, a shape, a mode), each with the time of the original divided by
that of the rewrite and the peak memory of the rewrite divided by that of the original.
`packs/PACK/parts.json`, which `benchmarks/worth/parts.py` writes, says which part of the original's
time the lines take that the rule rewrites.
"""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from regraft.rules.loading import Rule

Target = Literal["cpu", "cuda"]
Verdict = Literal["pays", "mixed", "gains nothing", "unknown"]
TARGETS: tuple[Target, ...] = ("cpu", "cuda")

# A gain or a loss in time counts where the whole 95% interval is beyond these ratios. One in memory
# counts where less than this part remains, since a step's peak is rarely that of one operation.
FASTER = 1.05
SLOWER = 0.95
SMALLER = 0.4
LARGER = 1.5
# A gain has to be at sizes that take time. What loses at small ones has to gain more than that: the
# source does not show the sizes with which it will run.
DECISIVE_SIZES = ("typical", "large")


@dataclass(frozen=True, slots=True)
class Case:
    """One measured case.

    size    "small", "typical" or "large"
    shape   the sizes of the inputs, as text
    mode    "inference" or "training" (forward and backward)
    time    time of the original divided by that of the rewrite: the low end of the 95% interval,
            the median, and the high end
    memory  peak memory of the rewrite divided by that of the original
    subject  what tells the measured module from others of the rule; "" where there is one
    part    the part of the original's time that the lines take that the rule rewrites; 1 where it
            was not measured, which understates what these lines gain
    """

    size: str
    shape: str
    mode: str
    time: tuple[float, float, float]
    memory: float
    subject: str = ""
    part: float = 1.0

    @property
    def gains(self) -> bool:
        """Return whether the rewrite is faster, or smaller and not slower."""
        low, _, high = self.time
        return low >= FASTER or (self.memory <= SMALLER and high >= SLOWER)

    @property
    def loses(self) -> bool:
        """Return whether the rewrite is slower, or takes much more memory."""
        return self.time[2] < SLOWER or self.memory > LARGER

    @property
    def factor(self) -> float:
        """The part of time or of memory by which the case gains most, above 1 for a gain."""
        return max(self.time[1], 1 / self.memory if 0 < self.memory <= SMALLER else 0)

    def __str__(self) -> str:
        time = f"{_digits(self.time[1])} times as fast"
        counts = self.memory <= SMALLER or self.memory > LARGER
        memory = f" with {_digits(self.memory)} times the memory" if counts else ""
        return f"{time}{memory} ({self.mode}, {self.shape})"


@dataclass(frozen=True, slots=True)
class Worth:
    """The worth of a rule on a target; no cases where it was not measured there."""

    target: Target
    cases: tuple[Case, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Return what the cases say together.

        "unknown" and "gains nothing" are said of decisive cases. "mixed" is a rule that gains in
        one and loses in another, or loses more at small sizes than it gains in any.
        """
        best = self.best
        if not self.decisive:
            return "unknown"
        if best is None:
            return "gains nothing"
        loses = any(case.loses for case in self.decisive)
        gain = max(case.factor for case in self.decisive if case.gains)
        loses_more = any(case.loses and case.time[1] * gain < 1 for case in self.cases)
        return "mixed" if loses or loses_more else "pays"

    @property
    def decisive(self) -> tuple[Case, ...]:
        """The cases of typical and large sizes."""
        return tuple(case for case in self.cases if case.size in DECISIVE_SIZES)

    @property
    def best(self) -> Case | None:
        """Return the decisive case that gains most time, or else most memory; None without one."""
        gaining = [case for case in self.decisive if case.gains]
        faster = [case for case in gaining if case.time[0] >= FASTER]
        if faster:
            return max(faster, key=lambda case: case.time[0])
        return min(gaining, key=lambda case: case.memory, default=None)

    @property
    def objection(self) -> str:
        """Return why the rule is not applied unless the user asks for it; "" where it pays."""
        match self.verdict:
            case "pays":
                return ""
            case "gains nothing":
                return f"gains nothing on {self.target}"
            case "mixed":
                losses = [case for case in self.cases if case.loses]
                worst = min(losses, key=lambda case: min(case.time[1], 1 / max(case.memory, 1)))
                return f"may gain or lose on {self.target} ({self.best}, but {worst})"
            case _:
                return f"worth unknown on {self.target}"

    @property
    def advice(self) -> str:
        """Return what tells the user more; "" where the verdict says enough."""
        match self.verdict:
            case "mixed":
                return "regraft bench measures your model"
            case "unknown":
                return "regraft bench measures it"
            case _:
                return ""


def _digits(number: float) -> str:
    """Return a number with about three significant digits, and never with an exponent."""
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}" if number >= 0.001 else "0.001"


def worth_of(rule: Rule, target: Target) -> Worth | None:
    """Return the measured worth of a built-in rule on a target; None for a rule of a user, which
    nobody has measured and its author wants."""
    if not rule.is_built_in:
        return None
    cases = _measurements(rule.path.parent).get((rule.id, target), ())
    return Worth(target, cases)


@functools.cache
def _measurements(pack: Path) -> Mapping[tuple[str, str], tuple[Case, ...]]:
    """Return the measured cases of a pack by rule and target."""
    file = pack / "worth.json"
    if not file.is_file():
        return MappingProxyType({})
    data = json.loads(file.read_text("utf-8"))
    parts = _parts(pack)
    return MappingProxyType(
        {
            (rule, device): tuple(
                _case_of(case, parts.get((rule, device, *_key(case)), 1.0))
                for case in entry["cases"]
            )
            for entry in data["measurements"]
            for rule, device in [(entry["rule"], entry["device"])]
        }
    )


def _parts(pack: Path) -> dict[tuple[str, ...], float]:
    """Return the measured parts of a pack by rule, target, and size, mode and subject of the
    case."""
    file = pack / "parts.json"
    if not file.is_file():
        return {}
    return {
        (entry["rule"], entry["device"], *_key(case)): case["part"]
        for entry in json.loads(file.read_text("utf-8"))["parts"]
        for case in entry["cases"]
    }


def _key(case: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return what tells a case of a rule from others."""
    return case["size"], case["mode"], case.get("subject", "")


def _case_of(data: Mapping[str, Any], part: float) -> Case:
    """Return the case of an entry of `cases`."""
    low, median, high = data["time"]
    return Case(
        data["size"],
        data["shape"],
        data["mode"],
        (low, median, high),
        data["memory"],
        data.get("subject", ""),
        part,
    )


def chosen_target(name: str) -> Target:
    """Return the target of a setting: "cpu", "cuda", or "auto" for cuda where an NVIDIA driver is
    installed, else cpu."""
    is_cuda = name == "cuda" or (name == "auto" and shutil.which("nvidia-smi") is not None)
    return "cuda" if is_cuda else "cpu"


def by_gain(worth: Worth) -> tuple[float, float]:
    """Return the sort key of a worth: the largest median gain in time first, then in memory."""
    best = worth.best
    return (-best.time[1], best.memory) if best is not None else (0.0, 1.0)
