"""The command `regraft bench`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regraft.cli.command_settings import (
    CONFIG,
    NO_CONFIG,
    SubjectOptions,
    load_chosen,
)
from regraft.cli.measured_model import (
    THREADS,
    import_bench,
    load_subject,
    prints_on_stderr,
    stop_for_problems,
)
from regraft.cli.shared_options import (
    DIRECTORIES,
    IGNORE,
    INTERRUPTED,
    PATH,
    join_values,
    output_format,
    paint,
    stop,
)
from regraft.report.terminal import Progress

if TYPE_CHECKING:
    from regraft.configuration import Settings
    from regraft.rules.lock_file import Lock
    from regraft.scanning import CompiledRule


@click.command("bench")
@click.argument("subject", metavar="TARGET")
@CONFIG
@NO_CONFIG
@click.option(
    "--packs",
    metavar="RULES",
    multiple=True,
    callback=join_values,
    help=(
        "Rules to measure: pack, pack/rule or rule, comma-separated; those that the configuration"
        " file selects if not given, else those that need only PyTorch."
    ),
)
@IGNORE
@DIRECTORIES
@click.option(
    "--mode",
    type=click.Choice(["inference", "training", "both"]),
    default="inference",
    show_default=True,
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 1_000_000),
    default=20,
    show_default=True,
    metavar="N",
    help="The most pairs of each comparison.",
)
@THREADS
@click.option(
    "--compile", "compiled", is_flag=True, help="Also against torch.compile, and both together."
)
@click.option(
    "--liger",
    is_flag=True,
    help="Also against Liger's own patch of the model, where it has one (CUDA).",
)
@click.option(
    "--unsafe/--no-unsafe",
    default=False,
    help="Also measure rules that change what callers see (safety contract).",
)
@click.option(
    "--verify/--no-verify",
    default=True,
    show_default=True,
    help="Measure only what running both versions proves.",
)
@click.option(
    "--select",
    "goal",
    is_flag=False,
    flag_value="fastest",
    type=click.Choice(["fastest", "smallest"]),
    help="Choose the rules that pay and write them to the lock file; alone it means fastest.",
)
@click.option(
    "--memory-limit",
    metavar="SIZE",
    help="For the fastest: peak memory, as 2GiB or 90% of the original's.",
)
@click.option(
    "--time-limit",
    metavar="TIME",
    help="For the smallest: time of a step, as 80ms or 110% of the original's.",
)
@click.option(
    "--lock",
    type=PATH,
    default="regraft.lock.toml",
    show_default=True,
    metavar="PATH",
    help="File that --select writes.",
)
@output_format("text", "json", "html")
def bench_command(**values: Any) -> None:
    """Measure what each rule is worth for a model on this machine: time and peak memory.

    TARGET is MODULE:FUNCTION or FILE.py:FUNCTION, a function without arguments that returns (model,
    inputs). Inputs are a dictionary of keyword arguments, a tuple of positional ones, a single one,
    or a list of several such calls, which have to be repeatable.

    Ctrl-C ends it with the rows that were measured so far, and writes no lock file.

    Exit codes: 0 measured, 1 no choice keeps the limit, 2 error, 130 interrupted.
    """
    sys.exit(_run(BenchOptions(**values)))


@dataclass(frozen=True, slots=True)
class BenchOptions(SubjectOptions):
    """The options of `regraft bench`, as its `--help` explains them."""

    rounds: int
    compiled: bool
    liger: bool
    verify: bool
    goal: str | None
    memory_limit: str | None
    time_limit: str | None
    lock: Path


def _run(options: BenchOptions) -> int:
    """Measure, print what was measured, write the lock file where rules are chosen, and return the
    exit status."""
    _check_goal(options)
    bench_module = import_bench("bench", options.subject)
    if options.rounds < bench_module.FEWEST:
        raise click.UsageError(f"--rounds: an interval needs at least {bench_module.FEWEST} pairs")
    settings = options.settings("auto")
    plan = _plan(bench_module, options, settings)
    rules, problems = load_chosen(settings)
    stop_for_problems(problems)
    result = _measure(bench_module, options, plan, rules)
    if result.chosen is not None:
        lock = bench_module.lock_of(result, options.subject, plan, rules)
        _write_lock(options.lock, lock, settings)
    if options.form == "json":
        document = bench_module.as_json(result, plan, options.subject)
        click.echo(json.dumps(document, indent=1))
    elif options.form == "html":
        from regraft.report.html.bench_page import bench_page

        click.echo(bench_page(bench_module.as_json(result, plan, options.subject)))
    elif result.chosen is not None:
        click.echo(f"wrote {options.lock}")
    if result.interrupted:
        return INTERRUPTED
    return 0 if result.limit_kept else 1


def _plan(bench_module: Any, options: BenchOptions, settings: Settings) -> Any:
    """Return the options of the benchmark."""
    return bench_module.Options(
        modes=("inference", "training") if options.mode == "both" else (options.mode,),
        rounds=options.rounds,
        compile=options.compiled,
        liger=options.liger,
        verify=options.verify,
        project=settings,
        goal=_parse_goal(bench_module, options),
    )


def _measure(
    bench_module: Any, options: BenchOptions, plan: Any, rules: Sequence[CompiledRule]
) -> Any:
    """Return the result of the benchmark, whose rows are printed as they come where the output is
    text; exit where the model cannot be measured or nothing can be verified."""
    from regraft.verification import VerifyError

    model, calls = load_subject(bench_module, options.subject, options.threads)
    is_text = options.form == "text"
    try:
        with Progress() as progress, prints_on_stderr(not is_text):
            observer = _Printer(bench_module, plan, progress, prints_rows=is_text)
            result = bench_module.bench(model, calls, rules, plan, observer)
            if is_text:
                observer.print_end(result)
    except (bench_module.BenchError, VerifyError) as problem:
        stop(f"{options.subject}: {problem}")
    return result


class _Printer:
    """Prints the table row by row, and hands all that a benchmark does to the progress line."""

    def __init__(
        self, bench_module: Any, options: Any, progress: Progress, *, prints_rows: bool
    ) -> None:
        self._bench, self._options, self._progress = bench_module, options, progress
        self._prints_rows = prints_rows
        self._table: Any = None  # None before its first row

    def begin(self, activity: str) -> None:
        """Say what the benchmark does."""
        self._progress.begin(activity)

    def count(self, measured: int, total: int) -> None:
        """Say how far it is."""
        self._progress.count(measured, total)

    def start_table(self, result: Any, labels: Sequence[str]) -> None:
        """Print what is measured."""
        self._table = self._bench.Table(labels, paint)
        if self._prints_rows:
            self._progress.print_lines(self._bench.heading(result, self._options))

    def add_row(self, row: Any) -> None:
        """Print a row of the table."""
        if self._prints_rows:
            self._progress.print_lines(self._table.lines(row))

    def print_end(self, result: Any) -> None:
        """Print what is said after the rows, also where there are none."""
        if self._table is None:
            self.start_table(result, ())
        self._progress.print_lines(self._bench.closing(result, self._options, paint))


def _check_goal(options: BenchOptions) -> None:
    """Raise UsageError for a goal of several modes, or a limit that is not that of the goal."""
    if options.goal is not None and options.mode == "both":
        raise click.UsageError("--select chooses for one mode: --mode inference or --mode training")
    if options.memory_limit is not None and options.goal != "fastest":
        raise click.UsageError("--memory-limit goes with --select fastest")
    if options.time_limit is not None and options.goal != "smallest":
        raise click.UsageError("--time-limit goes with --select smallest")


def _write_lock(path: Path, lock: Lock, settings: Settings) -> None:
    """Write the lock file, and say where the configuration file chooses other rules than it; exit
    where it cannot be written."""
    from regraft.rules.lock_file import write

    try:
        write(path, lock)
    except OSError as problem:
        stop(f"{path}: cannot be written: {problem.strerror or problem}")
    if settings.lines.keys() & {"select", "ignore"}:
        click.echo(
            f"note: {settings.path} chooses rules: check reads {path} only with --lock", err=True
        )


def _parse_goal(bench_module: Any, options: BenchOptions) -> Any:
    """Return the goal with its limit, "fastest" or "smallest"; None for no goal."""
    if options.goal is None:
        return None
    text, name = (
        (options.memory_limit, "memory")
        if options.goal == "fastest"
        else (options.time_limit, "time")
    )
    try:
        return bench_module.goal_of(options.goal, text)
    except ValueError as problem:
        raise click.UsageError(f"--{name}-limit: {problem}") from problem
