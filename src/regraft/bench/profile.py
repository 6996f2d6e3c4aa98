"""A profile of a model: which of its definitions take how much of a step, and what the findings in
them are expected to gain."""

from __future__ import annotations

import ast
import gc
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from regraft.bench.affected import affected_lines
from regraft.bench.allocations import Allocations
from regraft.bench.definitions import Definition, Definitions
from regraft.bench.expectation import (
    NOTHING,
    Opportunity,
    Range,
    opportunities,
    speed_of_whole,
)
from regraft.bench.measure import (
    BenchError,
    Call,
    clock,
    loss_of,
    seconds_of,
    step,
    warm,
)
from regraft.bench.run import machine
from regraft.bench.timeline import OUTSIDE, Location, Timeline
from regraft.execution.nested import flatten
from regraft.live.model_file import model_files
from regraft.scanning import CompiledRule, Finding, check_file, uncollected

LONG_STEP = 1.5  # seconds; a longer step warms up once only
PROFILED_SECONDS = 3.0  # after which no further step is profiled
FEWEST_STEPS, MOST_STEPS = 2, 50

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Row:
    """A definition in a step.

    definition  None for all that runs outside of the model's files
    calls       the number of its calls in a step; 0 where only parts of it are called
    share       the part of the step's time that its own lines take, with what they call outside of
                the model's files
    bytes       the bytes that its lines have allocated of those that are alive at the peak of
                memory; None where memory is not measured
    """

    definition: Definition | None
    calls: float
    share: float
    bytes: int | None
    opportunities: tuple[Opportunity, ...] = ()

    @property
    def saving(self) -> Range:
        """The part of the step's time that its findings are expected to save."""
        return sum((opportunity.saving for opportunity in self.opportunities), NOTHING)

    @property
    def is_expected_to_gain(self) -> bool:
        """Return whether something is expected of one of its findings."""
        return any(opportunity.gain.speed for opportunity in self.opportunities)


@dataclass(frozen=True, slots=True)
class Profile:
    """The result of a profile.

    seconds           the seconds of a step, as it is
    profiled_seconds  the seconds of a step while it is profiled
    steps             the number of profiled steps
    peak_bytes        the memory that a step needs beyond parameters and inputs; None where it is
                      not measured
    memory_note       why memory is not measured, or what of it is not counted; "" without a reason
    rows              by what they can save, then by their share
    idle              the findings in definitions that did not run
    errors            the files that could not be scanned, with the reasons
    """

    model: str
    mode: str
    device: str
    machine: str
    clock: str
    seconds: float
    profiled_seconds: float
    steps: int
    peak_bytes: int | None
    memory_note: str
    rows: tuple[Row, ...]
    idle: tuple[Finding, ...]
    errors: tuple[str, ...]

    @property
    def saving(self) -> Range:
        """The part of the step's time that all findings are expected to save."""
        return sum((row.saving for row in self.rows), NOTHING)

    @property
    def speed(self) -> Range | None:
        """How many times as fast the step is expected to become; None where nothing is
        expected."""
        is_expected = any(row.is_expected_to_gain for row in self.rows)
        return speed_of_whole(self.saving) if is_expected else None

    @property
    def candidates(self) -> tuple[str, ...]:
        """The ids of the rules that are worth measuring, those that can save most first."""
        saved: defaultdict[str, float] = defaultdict(float)
        for row in self.rows:
            for opportunity in row.opportunities:
                if opportunity.gain.hopeful:
                    saved[opportunity.finding.rule.id] += opportunity.saving.middle
        return tuple(sorted(saved, key=lambda rule: (-saved[rule], rule)))


def profile_model(
    model: Any,
    calls: Sequence[Call],
    rules: Sequence[CompiledRule],
    mode: str,
    say: Say = lambda _: None,
) -> Profile:
    """Profile a step of a model in a mode, "inference" or "training".

    Raises BenchError where the model has no source, cannot be run or trained, or cannot be traced.
    """
    trees = _trees(model)
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    model.train(mode == "training")
    profiler = _Profiler(model, calls, mode == "training", device, trees)
    say(f"profiling {mode}")
    profiler.measure_time()
    definitions = Definitions(trees)
    if all(location == OUTSIDE for location in profiler.timeline.nanoseconds):
        raise BenchError(
            f"no line of the model's files ({', '.join(Path(file).name for file in trees)}) ran:"
            " the loaded code is not that of these files"
        )
    say("measuring memory")
    at_peak, memory_note = profiler.measure_memory()
    say("scanning")
    findings, errors = _scan(trees, rules)
    nanoseconds = profiler.timeline.nanoseconds
    total = sum(nanoseconds.values())
    shares = {location: spent / total for location, spent in nanoseconds.items()}
    call_counts: Counter[Definition] = Counter()
    for code, number in profiler.timeline.calls.items():
        definition = definitions.called_by(code)
        if definition is not None:
            call_counts[definition] += number
    rows, idle = _rows(
        shares,
        at_peak,
        {definition: count / profiler.steps for definition, count in call_counts.items()},
        opportunities(
            {finding: affected_lines(finding, trees[finding.file]) for finding in findings},
            shares,
            mode,
        ),
        definitions,
    )
    return Profile(
        model=type(model).__name__,
        mode=mode,
        device=device.type,
        machine=machine(device),
        clock=clock(device),
        seconds=profiler.seconds,
        profiled_seconds=total / 1e9 / profiler.steps,
        steps=profiler.steps,
        peak_bytes=None if at_peak is None else sum(at_peak.values()),
        memory_note=memory_note,
        rows=rows,
        idle=idle,
        errors=errors,
    )


def _trees(model: Any) -> dict[str, ast.Module]:
    """Return the parsed source files of a model by their paths.

    Raises BenchError where there is none, one cannot be read, or what runs is not the source.
    """
    for module in model.modules():
        is_compiled = getattr(module, "_compiled_call_impl", None) is not None
        if is_compiled or isinstance(module, torch._dynamo.OptimizedModule):
            raise BenchError("the model is compiled by torch.compile: profile it before that")
    trees: dict[str, ast.Module] = {}
    for file in model_files(model):
        try:
            trees[file.path] = ast.parse(Path(file.path).read_bytes())
        except (OSError, SyntaxError, ValueError) as problem:
            raise BenchError(f"{file.path}: cannot be read: {problem}") from problem
    if not trees:
        raise BenchError(
            f"{type(model).__name__} has no Python source to profile: its classes are PyTorch's, or"
            " in no file"
        )
    return trees


class _Profiler:
    """Runs steps of a model, as they are and profiled.

    timeline  the time of all profiled steps
    steps     their number
    seconds   the seconds of a step, as it is
    """

    def __init__(
        self,
        model: Any,
        calls: Sequence[Call],
        is_training: bool,
        device: torch.device,
        files: Mapping[str, object],
    ) -> None:
        self.timeline = Timeline(files.keys(), device)
        self.seconds, self.steps = 0.0, 0
        self._model, self._calls, self._is_training = model, calls, is_training
        self._device, self._files = device, files

    def measure_time(self) -> None:
        """Run steps, each as it is and then profiled, until they took long enough; a long step runs
        once only as it is."""
        run_step = step(self._model, self._calls, self._is_training)
        started = time.perf_counter()
        warm(run_step, 1)
        is_long = time.perf_counter() - started > LONG_STEP
        if not is_long:
            warm(run_step, 1)
        seconds: list[float] = []
        gc.collect()
        with uncollected():
            end = time.perf_counter() + PROFILED_SECONDS
            while self.steps < FEWEST_STEPS or (
                self.steps < MOST_STEPS and time.perf_counter() < end
            ):
                if not (is_long and seconds):
                    seconds.append(seconds_of(run_step, 1, self._device))
                self._profile_step()
                self.steps += 1
        self.seconds = statistics.mean(seconds)

    def measure_memory(self) -> tuple[Counter[Location] | None, str]:
        """Return the bytes that are alive at the peak of a step by line, and a note about them.

        There are none where the model does not run while its operators are watched.
        """
        timeline = Timeline(self._files.keys(), self._device)
        existing = [*self._model.parameters(), *self._model.buffers()]
        for number, call in enumerate(self._calls):
            leaves = flatten(call, f"call {number}").values()
            existing += (leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
        allocations = Allocations(lambda: timeline.location, existing)
        try:
            with allocations:
                self._run_profiled(timeline)
        except Exception as problem:  # noqa: BLE001  whatever watching does to the model
            return None, f"{type(problem).__name__}: {problem}"
        note = "tensors without storage, such as sparse ones, are not counted"
        return allocations.peak(), note if allocations.has_uncounted else ""

    def _profile_step(self) -> None:
        """Run a profiled step; raise BenchError where only the profile keeps it from running."""
        try:
            self._run_profiled(self.timeline)
        except BenchError:
            raise
        except Exception as problem:
            raise BenchError(
                f"the model does not run while it is profiled: {type(problem).__name__}: {problem}"
            ) from problem

    def _run_profiled(self, timeline: Timeline) -> None:
        """Run a step and charge its time to the timeline."""
        for args, kwargs in self._calls:
            if not self._is_training:
                with torch.no_grad(), timeline:
                    self._model(*args, **kwargs)
                continue
            with timeline:
                loss = loss_of(self._model(*args, **kwargs))
            end_attribution = timeline.attribute_backward(loss)
            try:
                with timeline:
                    loss.backward()
            finally:
                end_attribution()
            del loss, end_attribution
            for parameter in self._model.parameters():
                parameter.grad = None


def _scan(
    files: Mapping[str, object], rules: Sequence[CompiledRule]
) -> tuple[list[Finding], tuple[str, ...]]:
    """Return the findings of files with the worth of their rules, and what could not be scanned."""
    worth = {rule.rule.id: rule.worth for rule in rules}
    findings: list[Finding] = []
    errors: list[str] = []
    for file in files:
        report = check_file(Path(file), rules)
        findings += report.findings
        errors += (f"{Path(file).name}: {error.message}" for error in report.errors)
    return [_with_worth(finding, worth) for finding in findings], tuple(errors)


def _with_worth(finding: Finding, worth: Mapping[str, Any]) -> Finding:
    """Return a finding with the worth of its rule."""
    return replace(finding, worth=worth[finding.rule.id])


def _rows(
    shares: Mapping[Location, float],
    at_peak: Counter[Location] | None,
    calls: Mapping[Definition, float],
    all_opportunities: Sequence[Opportunity],
    definitions: Definitions,
) -> tuple[tuple[Row, ...], tuple[Finding, ...]]:
    """Return the rows of the definitions that ran, and the findings in others."""

    def definition_at(location: Location) -> Definition | None:
        return None if location == OUTSIDE else definitions.at(location)

    share_of: defaultdict[Definition | None, float] = defaultdict(float)
    for location, share in shares.items():
        share_of[definition_at(location)] += share
    bytes_of: Counter[Definition | None] = Counter()
    for location, size in (at_peak or {}).items():
        bytes_of[definition_at(location)] += size
    opportunities_in: defaultdict[Definition | None, list[Opportunity]] = defaultdict(list)
    idle: list[Finding] = []
    for opportunity in all_opportunities:
        finding = opportunity.finding
        definition = definitions.at((finding.file, finding.start[0]))
        if definition in share_of:
            opportunities_in[definition].append(opportunity)
        else:
            idle.append(finding)
    rows = [
        Row(
            definition,
            calls.get(definition, 0) if definition is not None else 0,
            share,
            None if at_peak is None else bytes_of[definition],
            tuple(opportunities_in[definition]),
        )
        for definition, share in share_of.items()
    ]
    rows.sort(key=_rank)
    return tuple(rows), tuple(idle)


def _rank(row: Row) -> tuple[bool, float, bool, float]:
    """Return the sort key of a row: what it can save, whether it has findings, its share; what is
    outside of the files comes last."""
    return row.definition is None, -row.saving.middle, not row.opportunities, -row.share
