"""The command `regraft check`."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from regraft.cli.fix import Policy, chosen_policy, home_of, rewrite
from regraft.cli.shared import (
    DIRECTORIES,
    DRIVER,
    IGNORE,
    KEEP,
    PATH,
    PYTHON,
    SELECT,
    STREAMS,
    UNSAFE,
    as_error,
    is_terminal,
    load,
    load_locked,
    lock_file,
)
from regraft.report.formats import FORMATS, ErrorsOnly, Output
from regraft.report.words import count

if TYPE_CHECKING:
    from regraft.report.machine import Collector
    from regraft.rules import RuleProblem
    from regraft.scanning import CompiledRule, FileReport


@click.command()
@click.argument("paths", nargs=-1, required=True, type=PATH)
@SELECT
@IGNORE
@DIRECTORIES
@click.option(
    "--lock",
    type=PATH,
    metavar="PATH",
    help="Apply the rules of this file, which regraft bench wrote.",
)
@click.option(
    "--no-lock",
    is_flag=True,
    help="Do not look for regraft.lock.toml here or beside pyproject.toml.",
)
@click.option(
    "--diff",
    "show_diff",
    is_flag=True,
    help="Print what would change, as a unified diff; write nothing.",
)
@click.option("--fix", is_flag=True, help="Rewrite the files.")
@click.option(
    "--out",
    type=PATH,
    metavar="DIRECTORY",
    help=(
        "With --fix: leave the files alone, and write rewritten copies here, by their place in"
        " their package."
    ),
)
@click.option(
    "--verify/--no-verify",
    "prove",
    default=None,
    help="With --fix: write only what running both versions proves. On where torch is installed.",
)
@click.option(
    "--unproven",
    is_flag=True,
    help="With --fix: also write what is not proved, but never what is refuted.",
)
@DRIVER
@KEEP
@PYTHON
@UNSAFE
@click.option(
    "--vendor",
    is_flag=True,
    help="With --fix: write the ops' source beside the model (regraft_ops.py).",
)
@click.option(
    "--install", is_flag=True, help="Install the packages that findings wait for, after asking."
)
@click.option(
    "--explain", is_flag=True, help="Also say where rules nearly matched, and why they did not."
)
@click.option(
    "--jobs",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    metavar="N",
    help="Processes; 0 for all cores.",
)
@click.option(
    "--no-cache", is_flag=True, help="Scan and verify every file, also those that were before."
)
@click.option(
    "--output-format", "form", type=click.Choice(list(FORMATS)), default="full", show_default=True
)
def check(
    paths: tuple[Path, ...],
    select: str | None,
    ignore: str,
    directories: tuple[Path, ...],
    lock: Path | None,
    no_lock: bool,
    show_diff: bool,
    fix: bool,
    out: Path | None,
    prove: bool | None,
    unproven: bool,
    driver: str | None,
    keep: tuple[str, ...],
    python: str,
    unsafe: bool,
    vendor: bool,
    install: bool,
    explain: bool,
    jobs: int,
    no_cache: bool,
    form: str,
) -> None:
    """Find places where an optimized kernel can replace hand-written code.

    Exits with 0 when there is nothing to do, 1 when there are findings, 2 when something could not
    be read.
    """
    has_fix_options = any((prove, unproven, vendor, out, keep, driver))
    shows_vendored_diff = show_diff and vendor and not out
    _check_combination(show_diff, fix, has_fix_options and not shows_vendored_diff, form)
    _check_driver(driver, paths)
    from regraft.report.machine import Collector

    started = time.perf_counter()
    rules, problems = _chosen_rules(select, ignore, directories, lock, no_lock, unsafe)
    total = Collector(explain)
    total.errors += [as_error(problem) for problem in problems]
    output = (ErrorsOnly if show_diff else FORMATS[form])(STREAMS)
    policy = chosen_policy(fix, prove, unproven, no_cache, python, out, keep, driver)
    is_cached = not any((no_cache, show_diff, fix, explain))
    reports = _scan(paths, rules, explain, jobs, is_cached)
    if show_diff or fix:
        settled = _rewrite_all(reports, rules, fix, policy, vendor, total, output, paths)
    else:
        settled = 0
        for report in reports:
            _add_report(report, total, output)
    output.finish(
        total,
        time.perf_counter() - started,
        [*_install_remarks(total), *_verdict_remarks(fix, policy)],
    )
    if install and total.missing and not _offer_install(sorted(total.missing)):
        sys.exit(2)
    sys.exit(2 if total.errors else int(len(total.findings) > settled))


def _check_combination(show_diff: bool, fix: bool, needs_fix: bool, form: str) -> None:
    """Raise UsageError for options that exclude each other, or that need --fix without it."""
    if show_diff and fix:
        raise click.UsageError("--diff and --fix exclude each other")
    if needs_fix and not fix:
        raise click.UsageError(
            "--out, --verify, --unproven, --driver, --keep and --vendor go with --fix"
        )
    if show_diff and FORMATS[form].is_document:
        raise click.UsageError(
            f"--diff prints a diff, --output-format {form} prints a document: choose one"
        )


def _check_driver(driver: str | None, paths: Sequence[Path]) -> None:
    """Raise UsageError for a driver with more than one file."""
    if driver and (len(paths) > 1 or paths[0].is_dir()):
        raise click.UsageError("--driver is for one file: name the file that its model is in")


def _add_report(report: FileReport, total: Collector, output: Output) -> None:
    """Add the report of a file to the totals and to the output."""
    total.add(report)
    output.add(report)


def _rewrite_all(
    reports: Iterable[FileReport],
    rules: Sequence[CompiledRule],
    fix: bool,
    policy: Policy,
    vendor: bool,
    total: Collector,
    output: Output,
    paths: Sequence[Path],
) -> int:
    """Report each file and show or write what the rules make of it; return the number of findings
    that are settled.

    Files of tests, examples and vendored code below the `paths` are reported only.
    """
    from regraft.scanning import is_secondary

    settled = 0
    for report in reports:
        _add_report(report, total, output)
        if fix and report.findings and is_secondary(Path(report.file), paths):
            policy.passed_over += 1
        elif report.findings:
            patched = _with_patches(report, rules, vendor)
            rewritten_count, failures = rewrite(
                patched, rules, fix, policy, vendor, quiet=output.is_document
            )
            settled += rewritten_count
            total.errors += failures
    return settled


def _chosen_rules(
    select: str | None,
    ignore: str,
    directories: tuple[Path, ...],
    lock: Path | None,
    no_lock: bool,
    unsafe: bool,
) -> tuple[tuple[CompiledRule, ...], list[RuleProblem]]:
    """Return the rules of the options or of the lock file, and what is wrong with them."""
    lock_path = lock_file(lock, not no_lock, select is not None or bool(ignore))
    if lock_path is None:
        return load(select, ignore, directories, unsafe=unsafe)
    return load_locked(lock_path, directories, unsafe=unsafe)


def _install_remarks(total: Collector) -> Iterator[str]:
    """Yield, for each package that findings wait for, the command that installs it."""
    for requirement, number in sorted(total.missing.items()):
        waiting = "1 finding waits" if number == 1 else f"{number} findings wait"
        yield f"{waiting} for {requirement}: {shlex.join(_install_command([requirement]))}"


def _verdict_remarks(fix: bool, policy: Policy) -> Iterator[str]:
    """Yield the numbers of definitions by verdict, where any was verified, and of files that were
    passed over."""
    if fix and policy.prove and any(policy.counts.values()):
        counts = ", ".join(f"{number} {status}" for status, number in policy.counts.items())
        yield f"definitions: {counts}"
    if policy.passed_over:
        files = count(policy.passed_over, "file")
        yield f"{files} of tests, examples and vendored code not rewritten: name them to do so"


def _scan(
    paths: Sequence[Path], rules: tuple[CompiledRule, ...], explain: bool, jobs: int, cached: bool
) -> Iterable[FileReport]:
    """Yield the reports of the Python files under the paths."""
    from regraft.scanning import python_files
    from regraft.scanning.parallel import Task, scan_files
    from regraft.source.cache_key import cache_directory

    files = list(python_files(paths))
    task = Task(rules, explain, cache_directory() if cached else None)
    return _with_progress(scan_files(files, task, jobs), len(files))


def _with_patches(report: FileReport, rules: Sequence[CompiledRule], vendor: bool) -> FileReport:
    """Return the report with its patches, which are not handed from process to process."""
    from regraft.scanning import check_file

    if report.source is not None and not vendor:
        return report
    return check_file(Path(report.file), rules, home_of(Path(report.file), vendor))


def _with_progress(reports: Iterable[FileReport], number: int) -> Iterable[FileReport]:
    """Return the reports, with a progress bar on a terminal when there are many."""
    if number < 20 or not is_terminal(sys.stderr):
        return reports
    from rich.console import Console
    from rich.progress import track

    return track(reports, "Scanning", number, console=Console(stderr=True), transient=True)


def _install_command(requirements: list[str]) -> list[str]:
    """Return the command that installs packages into this environment."""
    return [sys.executable, "-m", "pip", "install", *requirements]


def _offer_install(requirements: list[str]) -> bool:
    """Install packages into this environment if the user agrees; return False where the installer
    fails."""
    command = _install_command(requirements)
    if not click.confirm(f"Run {shlex.join(command)}?", err=True):
        return True
    return subprocess.run(command, check=False).returncode == 0
