"""Benchmark of a model: each rule, all rules together, and the alternatives to them, against the
original model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from regraft.benchmarking.comparisons import alternatives, rule_comparisons
from regraft.benchmarking.machine_name import machine
from regraft.benchmarking.options_and_results import (
    Observer,
    Options,
    Result,
    Row,
    Silence,
    label_of,
)
from regraft.benchmarking.proof_subjects import Examination, examination_of
from regraft.benchmarking.result_comparison import Results
from regraft.benchmarking.rule_selection import choose
from regraft.benchmarking.steps import BenchError, Call, clock, step_seconds
from regraft.benchmarking.variant_measurement import Comparison, Meter
from regraft.benchmarking.variants import NONE, Rules, Variants
from regraft.scanning import CompiledRule


def bench(
    model: Any,
    calls: Sequence[Call],
    rules: Sequence[CompiledRule],
    options: Options,
    observer: Observer | None = None,
) -> Result:
    """Measure what each rule that applies to a model is worth, and choose rules where `options` has
    a goal. Ctrl-C ends it early: the result then has the rows that were measured, and no choice.
    Raises BenchError where the model cannot be run, copied or trained, VerifyError where nothing
    can be verified."""
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
    stages = rule_comparisons(differences, correct_rules)
    stages += alternatives(variants, results, correct_rules, options, result)
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
    verify, project = options.verify, options.project
    variants = Variants(model, rules, verify=verify, project=project, examination=examination)
    if options.verify:
        recorder.result.notes += (variants.examination.sentence,)
    return variants


def _names_of(stage: Sequence[Comparison]) -> str:
    """Return the name of the only comparison of a stage, or their number."""
    return stage[0].name if len(stage) == 1 else f"{len(stage)} variants"


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
