"""One benchmark: every rule, all together, and what stands beside them, against the model as it is."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from regraft.bench.measure import BenchError, Call, Pair, Step, clock, compare, peak, step
from regraft.bench.select import Choice, Goal, Worth, choose
from regraft.bench.variants import LIGER, NONE, Rules, Variants, difference
from regraft.rules.lock import Lock, pinned
from regraft.scanning import CompiledRule

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """How to measure: the modes ("inference", "training"), pairs of each comparison, what to compare beside rules.

    time_limit  seconds of processor time to verify one file
    """

    modes: tuple[str, ...] = ("inference",)
    rounds: int = 20
    compile: bool = False
    liger: bool = False
    verify: bool = True
    time_limit: float = 300.0
    goal: Goal | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison: what was measured against what, the bytes of both, and how results differ ("": they do not)."""

    mode: str
    name: str
    against: str
    rules: tuple[str, ...]
    pair: Pair
    bytes: int
    bytes_against: int
    differs: str = ""


@dataclass(slots=True)
class Result:
    """All rows; `left` are the places that no rule rewrites, and why; `chosen` None without a choice."""

    model: str
    device: str
    machine: str
    clock: str
    rows: list[Row] = field(default_factory=list)
    left: tuple[str, ...] = ()
    limit_kept: bool = True
    chosen: Choice | None = None


class Meter:
    """Measures variants of one model in one mode."""

    def __init__(
        self, variants: Variants, calls: Sequence[Call], mode: str, rounds: int, device: torch.device
    ) -> None:
        self.variants, self.calls, self.mode, self.rounds, self.device = variants, calls, mode, rounds, device
        self._bytes: dict[tuple[Rules, bool], int] = {}
        self._compiled: dict[Rules, Any] = {}

    def pair(self, new: Rules, old: Rules = NONE, *, compiled: tuple[bool, bool] = (False, False)) -> Pair:
        """Compare two variants, each compiled or not (new, old)."""
        steps = self._step(old, compiled[1]), self._step(new, compiled[0])
        return compare(*steps, self.rounds, self.device)

    def bytes(self, rules: Rules, compiled: bool = False) -> int:
        key = rules, compiled
        if key not in self._bytes:
            self._bytes[key] = peak(self._step(rules, compiled), self.device)
        return self._bytes[key]

    def row(
        self, name: str, new: Rules, old: Rules = NONE, *, against: str = "original",
        compiled: tuple[bool, bool] = (False, False), differs: str = "",
    ) -> Row:  # fmt: skip
        pair = self.pair(new, old, compiled=compiled)
        sizes = self.bytes(new, compiled[0]), self.bytes(old, compiled[1])
        return Row(self.mode, name, against, tuple(sorted(new)), pair, *sizes, differs)

    def _step(self, rules: Rules, compiled: bool) -> Step:
        model = self.variants[rules].train(self.mode == "training")
        if compiled:
            model = self._compiled.setdefault(rules, torch.compile(model))
        return step(model, self.calls, self.mode == "training")


def bench(
    model: Any, calls: Sequence[Call], rules: Sequence[CompiledRule], options: Options, say: Say = lambda _: None
) -> Result:
    """Measure what each rule that applies to a model is worth, and choose where `options` ask for it.

    Raises BenchError where the model cannot be run, copied or trained, VerifyError where nothing can be verified.
    """
    device = next((one.device for one in model.parameters()), torch.device("cpu"))
    result = Result(type(model).__name__, device.type, machine(device), clock(device))
    say("verifying" if options.verify else "rewriting")
    variants = Variants(model, rules, verify=options.verify, time_limit=options.time_limit)
    result.left = tuple(f"{Path(one.file).name} {one.place}: {one.reason}" for one in variants.all.left)
    equal = {name: difference(model, variants[frozenset({name})], calls) for name in variants.names}
    right = tuple(name for name in variants.names if not equal[name])
    for mode in options.modes:
        meter = Meter(variants, calls, mode, options.rounds, device)
        result.rows += _rows(meter, equal, right, options.compile, say)
        if options.liger:
            result.rows += _liger_rows(meter, right, result, say)
        if options.goal is not None:
            _select(meter, right, options, result, say)
    return result


def _rows(meter: Meter, equal: Mapping[str, str], right: tuple[str, ...], compiled: bool, say: Say) -> list[Row]:
    say(f"measuring {meter.mode}")
    rows = [meter.row("original", NONE)] if not equal else []
    for name, differs in equal.items():
        say(f"measuring {meter.mode}: {name}")
        rows.append(meter.row(name, frozenset({name}), differs=differs))
    everything = frozenset(right)
    label = _all(right)
    if len(right) > 1:
        rows.append(meter.row(label, everything))
    if compiled:
        say(f"measuring {meter.mode}: torch.compile")
        rows.append(meter.row("torch.compile", NONE, compiled=(True, False)))
        if right:
            both = f"{label} + torch.compile"
            rows.append(meter.row(both, everything, compiled=(True, False)))
            rows.append(meter.row(both, everything, against="torch.compile", compiled=(True, True)))
    return rows


def _liger_rows(meter: Meter, right: tuple[str, ...], result: Result, say: Say) -> list[Row]:
    """Liger's own patch of the model against the original, and all rules against that."""
    (name,) = LIGER
    say(f"measuring {meter.mode}: {name}")
    if not meter.variants.add_liger():
        result.left += (f"{result.model}: Liger has no patch for models of this type",)
        return []
    rows = [replace(meter.row(name, LIGER), rules=())]
    if right:
        rows.append(meter.row(_all(right), frozenset(right), LIGER, against=name))
    return rows


def _all(names: tuple[str, ...]) -> str:
    return f"all {len(names)} rules" if len(names) > 1 else "".join(names)


def _select(meter: Meter, names: tuple[str, ...], options: Options, result: Result, say: Say) -> None:
    """Choose among the rules; again where the chosen ones are not proved by themselves."""
    assert options.goal is not None
    while True:
        choice = choose(meter, names, options.goal, lambda text: say(f"choosing: {text}"))
        result.chosen, result.limit_kept = choice, choice is not None
        if choice is None or not choice.rules:
            return
        say("verifying the choice")
        if not options.verify or meter.variants.proved(choice.rules):
            break
        meter = Meter(meter.variants, meter.calls, meter.mode, meter.rounds, meter.device)
    differs = difference(meter.variants[NONE], meter.variants[choice.rules], meter.calls)
    if differs:
        raise BenchError(f"{', '.join(sorted(choice.rules))} together give other results: {differs}")


def lock_of(result: Result, target: str, options: Options, rules: Sequence[CompiledRule]) -> Lock:
    """The lock file of a choice."""
    assert result.chosen is not None and options.goal is not None
    by_id = {one.rule.id: one.rule for one in rules}
    whole = result.chosen.whole
    return Lock(
        target=target, goal=options.goal.kind, mode=options.modes[0], device=result.device, machine=result.machine,
        torch=torch.__version__,
        measured={"threads": torch.get_num_threads(), "clock": result.clock, **(_figures(whole) if whole else {})},
        rules=tuple(pinned(by_id[name], _figures(one)) for name, one in result.chosen.worth.items()),
    )  # fmt: skip


def _figures(worth: Worth) -> dict[str, Any]:
    """With and without the rules: times as fast (low, median, high), seconds, bytes."""
    pair = worth.pair
    return {
        "speed": [round(one, 4) for one in (pair.speed.low, pair.speed.median, pair.speed.high)],
        "seconds": pair.new.median, "seconds_without": pair.old.median,
        "peak_bytes": worth.bytes, "peak_bytes_without": worth.bytes_without,
    }  # fmt: skip


def calls_of(inputs: Any) -> tuple[Call, ...]:
    """Calls of a model: a list holds several, anything else is one.

    A call is a dictionary of keyword arguments, a tuple of positional ones, or a single one.
    """
    return tuple(_call(one) for one in (inputs if isinstance(inputs, list) else [inputs]))


def _call(given: Any) -> Call:
    if isinstance(given, Mapping):
        return (), dict(given)
    return (given if isinstance(given, tuple) else (given,)), {}


def machine(device: torch.device) -> str:
    """The name of the device, or of the processor."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE)
    except OSError:  # not Linux
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()
