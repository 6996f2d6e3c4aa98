"""A profile of a model: which of its definitions take how much of a step, and what the findings in
them are expected to gain."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from regraft.benchmarking.affected_lines import affected_lines
from regraft.benchmarking.definitions import Definition, Definitions
from regraft.benchmarking.expected_gains import (
    NOTHING,
    Opportunity,
    Range,
    opportunities,
    speed_of_whole,
)
from regraft.benchmarking.line_timer import OUTSIDE, Location
from regraft.benchmarking.machine_name import machine
from regraft.benchmarking.profiler import Profiler
from regraft.benchmarking.steps import BenchError, Call, clock
from regraft.configuration import Settings as Project
from regraft.live.source_rewriting import model_files
from regraft.scanning import CompiledRule, Finding, check_file
from regraft.scanning.rule_selection import rules_for

Say = Callable[[str], None]
_NO_PROJECT = Project()


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
    project: Project = _NO_PROJECT,
) -> Profile:
    """Profile a step of a model in a mode, "inference" or "training", without the rules that the
    project ignores in a file.

    Raises BenchError where the model has no source, cannot be run or trained, or cannot be traced.
    """
    trees = _trees(model)
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    model.train(mode == "training")
    profiler = Profiler(model, calls, mode == "training", device, trees)
    say(f"profiling {mode}")
    profiler.measure_time()
    shares = _shares(profiler, trees)
    say("measuring memory")
    at_peak, memory_note = profiler.measure_memory()
    say("scanning")
    findings, errors = _scan(trees, rules, project)
    lines = {finding: affected_lines(finding, trees[finding.file]) for finding in findings}
    definitions = Definitions(trees)
    rows, idle = _rows(
        shares,
        at_peak,
        _calls(profiler, definitions),
        opportunities(lines, shares, mode),
        definitions,
    )
    return Profile(
        model=type(model).__name__,
        mode=mode,
        device=device.type,
        machine=machine(device),
        clock=clock(device),
        seconds=profiler.seconds,
        profiled_seconds=sum(profiler.line_timer.nanoseconds.values()) / 1e9 / profiler.steps,
        steps=profiler.steps,
        peak_bytes=None if at_peak is None else sum(at_peak.values()),
        memory_note=memory_note,
        rows=rows,
        idle=idle,
        errors=errors,
    )


def _shares(profiler: Profiler, files: Collection[str]) -> dict[Location, float]:
    """Return the part of the step's time that each line takes.

    Raises BenchError where no line of the files ran.
    """
    nanoseconds = profiler.line_timer.nanoseconds
    if nanoseconds.keys() <= {OUTSIDE}:
        raise BenchError(
            f"no line of the model's files ({', '.join(Path(file).name for file in files)}) ran:"
            " the loaded code is not that of these files"
        )
    total = sum(nanoseconds.values())
    return {location: spent / total for location, spent in nanoseconds.items()}


def _calls(profiler: Profiler, definitions: Definitions) -> dict[Definition, float]:
    """Return the number of calls of each definition in a step."""
    numbers: Counter[Definition] = Counter()
    for code, number in profiler.line_timer.calls.items():
        definition = definitions.called_by(code)
        if definition is not None:
            numbers[definition] += number
    return {definition: number / profiler.steps for definition, number in numbers.items()}


def _trees(model: Any) -> dict[str, ast.Module]:
    """Return the parsed source files of a model by their paths.

    Raises BenchError where there is none, or one cannot be read.
    """
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


def _scan(
    files: Mapping[str, object], rules: Sequence[CompiledRule], project: Project
) -> tuple[list[Finding], tuple[str, ...]]:
    """Return the findings of files with the worth of their rules, and what could not be scanned."""
    worth = {rule.rule.id: rule.worth for rule in rules}
    findings: list[Finding] = []
    errors: list[str] = []
    for file in files:
        report = check_file(Path(file), rules_for(Path(file), tuple(rules), project))
        findings += (
            replace(finding, file=file, worth=worth[finding.rule.id]) for finding in report.findings
        )
        errors += (f"{Path(file).name}: {error.message}" for error in report.errors)
    return findings, tuple(errors)


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
