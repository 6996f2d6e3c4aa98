"""Benchmark of a model: each rule, all rules together, and the alternatives to them, against the
original model."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from regraft.benchmarking.measure import (
    BenchError,
    Call,
    Interval,
    Pair,
    Prepared,
    Race,
    Step,
    clock,
    gain_is_settled,
    is_decided,
    prepare_with_peak,
    step,
    step_seconds,
)
from regraft.benchmarking.proof import Examination, examination_of
from regraft.benchmarking.results import Results
from regraft.benchmarking.select import Choice, Goal, Worth, choose
from regraft.benchmarking.variants import LIGER, NONE, SDPA, Rules, Variants
from regraft.configuration import Settings as Project
from regraft.rules.lock import Lock, pin_rule
from regraft.scanning import CompiledRule


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a benchmark.

    modes       "inference", "training" or both
    rounds      the most pairs in each comparison, which ends earlier where it is decided
    compile     whether to compare with torch.compile
    liger       whether to compare with Liger's own patch
    verify      whether to verify the rules first
    project     the settings of the project, of which those count that are about rules in files and
                about proofs
    goal        the goal by which to choose rules; None for no choice
    """

    modes: tuple[str, ...] = ("inference",)
    rounds: int = 20
    compile: bool = False
    liger: bool = False
    verify: bool = True
    project: Project = field(default_factory=Project)
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
    is_complete           whether it was measured to the end
    """

    mode: str
    name: str
    against: str
    rules: tuple[str, ...]
    pair: Pair
    bytes: int
    bytes_against: int
    differs: str = ""
    is_complete: bool = True


@dataclass(slots=True)
class Result:
    """The result of a benchmark.

    left         the places that no rule rewrites, with reasons
    limit_kept   whether a choice keeps the goal's limit
    chosen       the chosen rules; None without a choice
    notes        how the rules are proved, and what else readers of the table have to know
    interrupted  the activity that Ctrl-C ended; "" where nothing did
    """

    model: str
    device: str
    machine: str
    clock: str
    rows: list[Row] = field(default_factory=list)
    left: tuple[str, ...] = ()
    limit_kept: bool = True
    chosen: Choice | None = None
    notes: tuple[str, ...] = ()
    interrupted: str = ""


class Observer(Protocol):
    """Follows a benchmark while it runs."""

    def begin(self, activity: str) -> None:
        """Note what the benchmark does from now on."""

    def count(self, measured: int, total: int) -> None:
        """Note how many pairs the activity has measured, of how many at most."""

    def start_table(self, result: Result, labels: Sequence[str]) -> None:
        """Note the result before its first row, and the labels of all rows to come."""

    def add_row(self, row: Row) -> None:
        """Note a row as soon as it is measured."""


class Silence:
    """An observer that does nothing."""

    def begin(self, activity: str) -> None: ...
    def count(self, measured: int, total: int) -> None: ...
    def start_table(self, result: Result, labels: Sequence[str]) -> None: ...
    def add_row(self, row: Row) -> None: ...


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


def bench(
    model: Any,
    calls: Sequence[Call],
    rules: Sequence[CompiledRule],
    options: Options,
    observer: Observer | None = None,
) -> Result:
    """Measure what each rule that applies to a model is worth, and choose rules where `options` has
    a goal.

    Ctrl-C ends it early: the result then has the rows that were measured, and no choice. Raises
    BenchError where the model cannot be run, copied or trained, VerifyError where nothing can be
    verified.
    """
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    result = Result(type(model).__name__, device.type, machine(device), clock(device))
    recorder = _Recorder(result, observer or Silence())
    try:
        _run_benchmark(model, calls, rules, options, device, recorder)
    except KeyboardInterrupt:
        result.interrupted = recorder.activity or "starting"
        result.chosen = None
    return result


class _Recorder:
    """An observer that keeps the rows in the result, and hands all on to another one."""

    def __init__(self, result: Result, observer: Observer) -> None:
        self.result, self._observer = result, observer
        self.activity = ""

    def begin(self, activity: str) -> None:
        """Keep the activity, for the message on an interruption."""
        self.activity = activity
        self._observer.begin(activity)

    def count(self, measured: int, total: int) -> None:
        """Hand the count on."""
        self._observer.count(measured, total)

    def start_table(self, result: Result, labels: Sequence[str]) -> None:
        """Hand the start on."""
        self._observer.start_table(result, labels)

    def add_row(self, row: Row) -> None:
        """Keep the row."""
        self.result.rows.append(row)
        self._observer.add_row(row)


def _run_benchmark(
    model: Any,
    calls: Sequence[Call],
    rules: Sequence[CompiledRule],
    options: Options,
    device: torch.device,
    recorder: _Recorder,
) -> None:
    """Prove, measure and choose, and put what comes out into the recorder's result."""
    result = recorder.result
    variants = _rewritten(model, calls, rules, options, device, recorder)
    result.left = tuple(
        f"{Path(place.file).name} {place.place}: {place.reason}" for place in variants.all.unchanged
    )
    recorder.begin("comparing results")
    results = Results(model, calls, gradients="training" in options.modes)
    differences = {name: results.difference(variants[frozenset({name})]) for name in variants.names}
    correct_rules = tuple(name for name in variants.names if not differences[name])
    stages = _rule_comparisons(differences, correct_rules)
    stages += _alternatives(variants, results, correct_rules, options, result)
    del results  # gradients as large as the model
    stages = [stage for stage in stages if stage]
    labels = [comparison.label for stage in stages for comparison in stage]
    recorder.start_table(result, labels)
    for mode in options.modes:
        meter = Meter(variants, calls, mode, options.rounds, device, recorder)
        for stage in stages:
            recorder.begin(f"measuring {mode}: {_names_of(stage)}")
            meter.measure(stage)
        if options.goal is not None:
            _choose_rules(meter, correct_rules, options, result)
    order = {
        (mode, label): number
        for number, (mode, label) in enumerate(
            (mode, label) for mode in options.modes for label in labels
        )
    }
    result.rows.sort(key=lambda row: order[row.mode, label_of(row.name, row.against)])


def _rewritten(
    model: Any,
    calls: Sequence[Call],
    rules: Sequence[CompiledRule],
    options: Options,
    device: torch.device,
    recorder: _Recorder,
) -> Variants:
    """Return the variants of the model, of proved rules where the options ask for that, and note in
    the result how they are proved."""
    recorder.begin("verifying" if options.verify else "rewriting")
    examination = Examination(None, "")
    if options.verify:
        seconds = step_seconds(model, calls, "training" in options.modes, device)
        examination = examination_of(model, calls, seconds)
    variants = Variants(
        model,
        rules,
        verify=options.verify,
        project=options.project,
        examination=examination,
    )
    if options.verify:
        recorder.result.notes += (variants.examination.sentence,)
    return variants


def _rule_comparisons(
    differences: Mapping[str, str], correct_rules: tuple[str, ...]
) -> list[list[Comparison]]:
    """Return the comparisons of each rule, and of all correct rules together, with the original; of
    the original with itself where there is no rule.

    differences: how the results differ, by rule ("" where they are equal).
    """
    rows = [
        Comparison(name, (frozenset({name}), False), differs=differs)
        for name, differs in differences.items()
    ]
    if len(correct_rules) > 1:
        rows.append(Comparison(_label_for_all(correct_rules), (frozenset(correct_rules), False)))
    return [rows or [Comparison("original", ORIGINAL)]]


def _alternatives(
    variants: Variants,
    results: Results,
    correct_rules: tuple[str, ...],
    options: Options,
    result: Result,
) -> list[list[Comparison]]:
    """Return the comparisons with what the user could do without Regraft: torch.compile, Liger's
    own patch and the attention of PyTorch. Each list has the same variant to compare with."""
    all_rules, label = frozenset(correct_rules), _label_for_all(correct_rules)
    stages: list[list[Comparison]] = [_sdpa_comparisons(variants, results, label, all_rules)]
    if stages[0]:
        result.notes += (
            "the model runs transformers' eager attention and supports PyTorch's:"
            f" {stages[0][0].name} is measured as well, for which no Regraft is needed",
        )
    if options.compile:
        combined = f"{label} + torch.compile"
        stages.append([Comparison("torch.compile", COMPILED)])
        if correct_rules:
            stages[-1].append(Comparison(combined, (all_rules, True)))
            stages.append([Comparison(combined, (all_rules, True), COMPILED, "torch.compile")])
    if options.liger and not variants.add_liger():
        result.left += (f"{result.model}: Liger has no patch for models of this type",)
    elif options.liger:
        (name,) = LIGER
        stages.append([Comparison(name, (LIGER, False))])
        if correct_rules:
            stages.append([Comparison(label, (all_rules, False), (LIGER, False), name)])
    return stages


def _sdpa_comparisons(
    variants: Variants, results: Results, label: str, all_rules: Rules
) -> list[Comparison]:
    """Return the comparisons of PyTorch's attention, alone and with all correct rules, with a model
    of transformers that runs eager attention; none for other models."""
    if not variants.add_sdpa():
        return []
    (name,) = SDPA
    rules = {name: SDPA}
    if all_rules:
        rules[f"{label} + {name}"] = SDPA | all_rules
    return [
        Comparison(
            row_name,
            (variant, False),
            differs=results.difference(variants[variant]),
        )
        for row_name, variant in rules.items()
    ]


def _names_of(stage: Sequence[Comparison]) -> str:
    """Return the name of the only comparison of a stage, or their number."""
    return stage[0].name if len(stage) == 1 else f"{len(stage)} variants"


def _label_for_all(names: tuple[str, ...]) -> str:
    """Return the label of all these rules together."""
    return f"all {len(names)} rules" if len(names) > 1 else "".join(names)


def label_of(name: str, against: str) -> str:
    """Return the label of a comparison, with what it is compared with unless that is the
    original."""
    return name if against == "original" else f"{name}, against {against}"


def _choose_rules(meter: Meter, names: tuple[str, ...], options: Options, result: Result) -> None:
    """Choose among the rules by the goal, anew where the chosen ones are not proved by themselves.

    Raises BenchError where the chosen rules together give other results than the original.
    """
    assert options.goal is not None
    begin = meter.observer.begin
    while True:
        choice = choose(meter, names, options.goal, lambda text: begin(f"choosing: {text}"))
        if choice is None or not choice.rules:
            break
        begin("verifying the choice")
        if not options.verify or meter.variants.prove(choice.rules):
            _check_results(meter, choice.rules)
            break
        meter = Meter(
            meter.variants, meter.calls, meter.mode, meter.rounds, meter.device, meter.observer
        )
    result.chosen, result.limit_kept = choice, choice is not None


def _check_results(meter: Meter, rules: Rules) -> None:
    """Raise BenchError where rules together give other results than the original."""
    results = Results(meter.variants[NONE], meter.calls, gradients=meter.mode == "training")
    differs = results.difference(meter.variants[rules])
    if differs:
        raise BenchError(f"{', '.join(sorted(rules))} together give other results: {differs}")


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
