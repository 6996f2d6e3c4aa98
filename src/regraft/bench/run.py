"""Benchmark of a model: each rule, all rules together, and the alternatives to them, against the
original model."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from regraft.bench.measure import (
    BenchError,
    Call,
    Pair,
    Step,
    clock,
    compare,
    is_decided,
    peak,
    step,
)
from regraft.bench.select import Choice, Goal, Worth, choose
from regraft.bench.variants import LIGER, NONE, Rules, Variants, difference
from regraft.rules.lock import Lock, pin_rule
from regraft.scanning import CompiledRule

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a benchmark.

    modes       "inference", "training" or both
    rounds      the most pairs in each comparison, which ends earlier where it is decided
    compile     whether to compare with torch.compile
    liger       whether to compare with Liger's own patch
    verify      whether to verify the rules first
    time_limit  seconds of processor time to verify one file
    goal        the goal by which to choose rules; None for no choice
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
    """A comparison of a variant of the model with another one.

    mode                  "inference" or "training"
    name, against         the labels of the two
    rules                 the ids of the rules of the variant
    pair                  the times of both
    bytes, bytes_against  the peak memory of both
    differs               how the results differ; "" where they are equal
    """

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
    """The result of a benchmark.

    left        the places that no rule rewrites, with reasons
    limit_kept  whether a choice keeps the goal's limit
    chosen      the chosen rules; None without a choice
    """

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
        self,
        variants: Variants,
        calls: Sequence[Call],
        mode: str,
        rounds: int,
        device: torch.device,
    ) -> None:
        self.variants, self.calls, self.mode, self.rounds, self.device = (
            variants,
            calls,
            mode,
            rounds,
            device,
        )
        self._bytes: dict[tuple[Rules, bool], int] = {}
        self._compiled: dict[Rules, Any] = {}

    def pair(
        self, new: Rules, old: Rules = NONE, *, compiled: tuple[bool, bool] = (False, False)
    ) -> Pair:
        """Compare two variants, each compiled or not (new, old)."""
        steps = self._step(old, compiled[1]), self._step(new, compiled[0])
        return compare(*steps, self.rounds, self.device, is_enough=is_decided)

    def bytes(self, rules: Rules, compiled: bool = False) -> int:
        """Return the peak bytes of a variant, measured once."""
        key = rules, compiled
        if key not in self._bytes:
            self._bytes[key] = peak(self._step(rules, compiled), self.device)
        return self._bytes[key]

    def row(
        self,
        name: str,
        new: Rules,
        old: Rules = NONE,
        *,
        against: str = "original",
        compiled: tuple[bool, bool] = (False, False),
        differs: str = "",
    ) -> Row:
        """Compare two variants in time and memory, each compiled or not (new, old); return the row
        of the table."""
        pair = self.pair(new, old, compiled=compiled)
        sizes = self.bytes(new, compiled[0]), self.bytes(old, compiled[1])
        return Row(self.mode, name, against, tuple(sorted(new)), pair, *sizes, differs)

    def _step(self, rules: Rules, compiled: bool) -> Step:
        """Return the step of a variant in this meter's mode."""
        model = self.variants[rules].train(self.mode == "training")
        if compiled:
            model = self._compiled.setdefault(rules, torch.compile(model))
        return step(model, self.calls, self.mode == "training")


def bench(
    model: Any,
    calls: Sequence[Call],
    rules: Sequence[CompiledRule],
    options: Options,
    say: Say = lambda _: None,
) -> Result:
    """Measure what each rule that applies to a model is worth, and choose rules where `options` has
    a goal.

    Raises BenchError where the model cannot be run, copied or trained, VerifyError where nothing
    can be verified.
    """
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    result = Result(type(model).__name__, device.type, machine(device), clock(device))
    say("verifying" if options.verify else "rewriting")
    variants = Variants(model, rules, verify=options.verify, time_limit=options.time_limit)
    result.left = tuple(
        f"{Path(place.file).name} {place.place}: {place.reason}" for place in variants.all.unchanged
    )
    differences = {
        name: difference(model, variants[frozenset({name})], calls) for name in variants.names
    }
    correct_rules = tuple(name for name in variants.names if not differences[name])
    for mode in options.modes:
        meter = Meter(variants, calls, mode, options.rounds, device)
        result.rows += _rows(meter, differences, correct_rules, options.compile, say)
        if options.liger:
            result.rows += _liger_rows(meter, correct_rules, result, say)
        if options.goal is not None:
            _choose_rules(meter, correct_rules, options, result, say)
    return result


def _rows(
    meter: Meter,
    differences: Mapping[str, str],
    correct_rules: tuple[str, ...],
    compiled: bool,
    say: Say,
) -> list[Row]:
    """Measure each rule, all correct rules together, and torch.compile if asked for; return the
    rows of the table.

    differences: how the results differ, by rule ("" where they are equal).
    """
    say(f"measuring {meter.mode}")
    rows = [meter.row("original", NONE)] if not differences else []
    for name, differs in differences.items():
        say(f"measuring {meter.mode}: {name}")
        rows.append(meter.row(name, frozenset({name}), differs=differs))
    all_rules = frozenset(correct_rules)
    label = _label_for_all(correct_rules)
    if len(correct_rules) > 1:
        rows.append(meter.row(label, all_rules))
    if compiled:
        say(f"measuring {meter.mode}: torch.compile")
        rows.append(meter.row("torch.compile", NONE, compiled=(True, False)))
        if correct_rules:
            combined_label = f"{label} + torch.compile"
            rows.append(meter.row(combined_label, all_rules, compiled=(True, False)))
            rows.append(
                meter.row(combined_label, all_rules, against="torch.compile", compiled=(True, True))
            )
    return rows


def _liger_rows(
    meter: Meter, correct_rules: tuple[str, ...], result: Result, say: Say
) -> list[Row]:
    """Compare Liger's own patch of the model with the original, and all correct rules with the
    patch."""
    (name,) = LIGER
    say(f"measuring {meter.mode}: {name}")
    if not meter.variants.add_liger():
        result.left += (f"{result.model}: Liger has no patch for models of this type",)
        return []
    rows = [replace(meter.row(name, LIGER), rules=())]
    if correct_rules:
        rows.append(
            meter.row(_label_for_all(correct_rules), frozenset(correct_rules), LIGER, against=name)
        )
    return rows


def _label_for_all(names: tuple[str, ...]) -> str:
    """Return the label of all these rules together."""
    return f"all {len(names)} rules" if len(names) > 1 else "".join(names)


def _choose_rules(
    meter: Meter, names: tuple[str, ...], options: Options, result: Result, say: Say
) -> None:
    """Choose among the rules by the goal, anew where the chosen ones are not proved by themselves.

    Raises BenchError where the chosen rules together give other results than the original.
    """
    assert options.goal is not None
    while True:
        choice = choose(meter, names, options.goal, lambda text: say(f"choosing: {text}"))
        result.chosen, result.limit_kept = choice, choice is not None
        if choice is None or not choice.rules:
            return
        say("verifying the choice")
        if not options.verify or meter.variants.prove(choice.rules):
            break
        meter = Meter(meter.variants, meter.calls, meter.mode, meter.rounds, meter.device)
    differs = difference(meter.variants[NONE], meter.variants[choice.rules], meter.calls)
    if differs:
        raise BenchError(
            f"{', '.join(sorted(choice.rules))} together give other results: {differs}"
        )


def lock_of(result: Result, target: str, options: Options, rules: Sequence[CompiledRule]) -> Lock:
    """Return the lock file of a choice."""
    assert result.chosen is not None and options.goal is not None
    by_id = {rule.rule.id: rule.rule for rule in rules}
    total = result.chosen.whole
    return Lock(
        target=target,
        goal=options.goal.kind,
        mode=options.modes[0],
        device=result.device,
        machine=result.machine,
        torch=torch.__version__,
        measured={
            "threads": torch.get_num_threads(),
            "clock": result.clock,
            **(_figures(total) if total else {}),
        },
        rules=tuple(
            pin_rule(by_id[name], _figures(worth)) for name, worth in result.chosen.worth.items()
        ),
    )


def _figures(worth: Worth) -> dict[str, Any]:
    """Return times as fast (low, median, high), and seconds and bytes with and without the
    rules."""
    pair = worth.pair
    return {
        "speed": [
            round(speed, 4) for speed in (pair.speed.low, pair.speed.median, pair.speed.high)
        ],
        "seconds": pair.new.median,
        "seconds_without": pair.old.median,
        "peak_bytes": worth.bytes,
        "peak_bytes_without": worth.bytes_without,
    }


def calls_of(inputs: Any) -> tuple[Call, ...]:
    """Return the calls of a model: one for each element of a list, or a single call for any other
    input.

    A call is a dictionary of keyword arguments, a tuple of positional ones, or a single positional
    one.
    """
    return tuple(
        _call(call_input) for call_input in (inputs if isinstance(inputs, list) else [inputs])
    )


def _call(call_input: Any) -> Call:
    """Return the positional and keyword arguments of a call."""
    if isinstance(call_input, Mapping):
        return (), dict(call_input)
    return (call_input if isinstance(call_input, tuple) else (call_input,)), {}


def machine(device: torch.device) -> str:
    """Return the name of the CUDA device, or of the processor."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    try:
        model_name = re.search(
            r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE
        )
    except OSError:  # not Linux
        model_name = None
    return model_name[1].strip() if model_name else platform.processor() or platform.machine()
