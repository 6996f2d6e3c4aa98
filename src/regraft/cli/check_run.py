"""The work of `regraft check`: files are scanned, reported, and rewritten where asked."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from regraft.cli.configured import (
    is_stated,
    load_chosen,
    rules_for,
    settings_of,
    with_rule_options,
)
from regraft.cli.fix import Policy, chosen_policy, home_of, rewrite
from regraft.cli.shared import STREAMS, as_error, is_terminal, load_locked, lock_file
from regraft.report.formats import FORMATS, ErrorsOnly, Output
from regraft.report.words import count

if TYPE_CHECKING:
    from regraft.configuration import Settings
    from regraft.report.machine import Collector
    from regraft.scanning import CompiledRule, FileReport
    from regraft.source.text import SourceError

STDIN = Path("-")


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The options of `regraft check`, as its `--help` explains them."""

    paths: tuple[Path, ...]
    config: Path | None
    no_config: bool
    exclude: tuple[str, ...]
    force_exclude: bool
    no_gitignore: bool
    stdin_filename: Path | None
    select: str | None
    ignore: str
    directories: tuple[Path, ...]
    lock: Path | None
    no_lock: bool
    show_diff: bool
    fix: bool
    out: Path | None
    prove: bool | None
    unproven: bool
    driver: str | None
    keep: tuple[str, ...]
    python: str
    unsafe: bool
    vendor: bool
    install: bool
    explain: bool
    jobs: int
    no_cache: bool
    form: str


def run(options: CheckOptions) -> int:
    """Check the files of the options and return the exit status."""
    _check_combination(options)
    from regraft.report.machine import Collector

    started = time.perf_counter()
    total = Collector(options.explain)
    output = (ErrorsOnly if options.show_diff else FORMATS[options.form])(STREAMS)
    settled = sum(
        _GroupRun(options, settings, paths, total, output).run()
        for settings, paths in _groups(options)
    )
    remarks = [*_install_remarks(total), *_verdict_remarks(total)]
    if total.notebooks:
        remarks.append(f"{count(total.notebooks, 'notebook')} not read: Regraft reads .py files")
    output.finish(total, time.perf_counter() - started, remarks)
    if options.install and total.missing and not _offer_install(sorted(total.missing)):
        return 2
    return 2 if total.errors else int(len(total.findings) > settled)


def _check_combination(options: CheckOptions) -> None:
    """Raise UsageError for options that exclude each other, or that need another one."""
    with_fix = (options.prove, options.unproven, options.vendor, options.out, options.keep)
    shows_vendored_diff = options.show_diff and options.vendor and not options.out
    if options.show_diff and options.fix:
        raise click.UsageError("--diff and --fix exclude each other")
    if any((*with_fix, options.driver)) and not (shows_vendored_diff or options.fix):
        raise click.UsageError(
            "--out, --verify, --unproven, --driver, --keep and --vendor go with --fix"
        )
    if options.show_diff and FORMATS[options.form].is_document:
        raise click.UsageError(
            f"--diff prints a diff, --output-format {options.form} prints a document: choose one"
        )
    if options.driver and (len(options.paths) > 1 or options.paths[0].is_dir()):
        raise click.UsageError("--driver is for one file: name the file that its model is in")
    _check_stdin(options)


def _check_stdin(options: CheckOptions) -> None:
    """Raise UsageError where standard input is combined with what needs a file."""
    if STDIN not in options.paths:
        if options.stdin_filename is not None:
            raise click.UsageError("--stdin-filename goes with the path -")
    elif len(options.paths) > 1:
        raise click.UsageError("- stands for standard input and is the only path")
    elif options.fix:
        raise click.UsageError("--fix rewrites files, and - is none: --diff prints the change")


def _groups(options: CheckOptions) -> Iterator[tuple[Settings, list[Path]]]:
    """Yield the paths by the settings that hold for them, below the options."""
    from regraft.source.path_patterns import PathPatterns

    named = (options.stdin_filename or Path(),) if STDIN in options.paths else options.paths
    for settings, paths in settings_of(named, options.config, options.no_config):
        chosen = with_rule_options(
            settings, options.select, options.ignore, options.directories, options.unsafe
        )
        if is_stated("jobs"):
            chosen = replace(chosen, jobs=options.jobs)
        patterns = PathPatterns(Path(), options.exclude)
        try:
            patterns.check()
        except ValueError as error:
            raise click.UsageError(f"--exclude takes {error}") from error
        yield (
            replace(
                chosen,
                exclude=(*chosen.exclude, patterns),
                respect_gitignore=chosen.respect_gitignore and not options.no_gitignore,
            ),
            paths,
        )


@dataclass(slots=True)
class _GroupRun:
    """The check of the paths for which one configuration file holds."""

    options: CheckOptions
    settings: Settings
    paths: Sequence[Path]
    total: Collector
    output: Output

    def run(self) -> int:
        """Report the files, and show or write what the rules make of them; return the number of
        findings that are settled."""
        rules, problems = self._chosen_rules()
        self.total.errors += problems
        rewrites = self.options.show_diff or self.options.fix
        settled = 0
        for report in self._reports(rules):
            file_rules = rules_for(Path(report.file), rules, self.settings)
            shown = report
            if len(file_rules) < len(rules):
                shown = _without_other_rules(report, file_rules)
            self.total.add(shown)
            self.output.add(shown)
            if rewrites and shown.findings:
                settled += self._rewrite(shown, file_rules)
        return settled

    def _chosen_rules(self) -> tuple[tuple[CompiledRule, ...], list[SourceError]]:
        """Return the rules of the settings or of the lock file, and what is wrong with them."""
        options, settings = self.options, self.settings
        stated = options.select is not None or bool(options.ignore)
        lock_path = lock_file(options.lock, not options.no_lock, stated)
        chosen_by_file = settings.select is not None or bool(settings.ignore)
        if lock_path is None or (options.lock is None and chosen_by_file):
            return load_chosen(settings)
        rules, problems = load_locked(lock_path, settings.rules, unsafe=settings.unsafe)
        return rules, [as_error(problem) for problem in problems]

    def _reports(self, rules: tuple[CompiledRule, ...]) -> Iterable[FileReport]:
        """Yield the reports of the Python files under the paths, or of standard input."""
        from regraft.scanning import FileSearch
        from regraft.scanning.parallel import Task, scan_files
        from regraft.source.cache_key import cache_directory

        options = self.options
        if STDIN in options.paths:
            yield _stdin_report(options.stdin_filename, rules, options.explain)
            return
        search = FileSearch(
            self.settings.exclude, self.settings.respect_gitignore, options.force_exclude
        )
        files = list(search.python_files(self.paths))
        self.total.notebooks += search.notebooks
        is_cached = not any((options.no_cache, options.show_diff, options.fix, options.explain))
        task = Task(rules, options.explain, cache_directory() if is_cached else None)
        yield from _with_progress(scan_files(files, task, self.settings.jobs), len(files))

    def _rewrite(self, report: FileReport, rules: Sequence[CompiledRule]) -> int:
        """Show or write what the rules make of a file; return the number of findings that are
        settled.

        Files of tests, examples and vendored code below the paths are only reported.
        """
        from regraft.scanning import is_secondary

        options = self.options
        if options.fix and is_secondary(Path(report.file), self.paths):
            self.total.passed_over += 1
            return 0
        settled, failures = rewrite(
            _with_patches(report, rules, options.vendor),
            rules,
            options.fix,
            self._policy_for(Path(report.file)),
            options.vendor,
            self.output.is_document,
            self.total.verdicts,
        )
        self.total.errors += failures
        return settled

    def _policy_for(self, file: Path) -> Policy:
        """Return the policy for a file: by the options, else by the settings."""
        options, settings = self.options, self.settings
        python = options.python if is_stated("python") else settings.python or options.python
        policy = chosen_policy(
            options.fix,
            options.prove,
            options.unproven,
            options.no_cache,
            python,
            options.out,
            options.keep if is_stated("keep") else settings.keep,
        )
        driver = options.driver or settings.driver_of(file)
        return replace(policy, driver=driver, time_limit=settings.time_limit)


def _without_other_rules(report: FileReport, rules: Sequence[CompiledRule]) -> FileReport:
    """Return the report of a file as these rules alone give it."""
    names = {rule.rule.id for rule in rules}
    return replace(
        report,
        findings=tuple(finding for finding in report.findings if finding.rule.id in names),
        misses=tuple(miss for miss in report.misses if miss.rule.id in names),
    )


def _stdin_report(
    filename: Path | None, rules: tuple[CompiledRule, ...], explain: bool
) -> FileReport:
    """Return the report of the text on standard input."""
    from regraft.scanning import check_source, failed
    from regraft.source.text import SourceError, parse

    source = parse(str(filename or "<stdin>"), sys.stdin.buffer.read())
    if isinstance(source, SourceError):
        return failed(source)
    return check_source(source, rules, explain=explain)


def _install_remarks(total: Collector) -> Iterator[str]:
    """Yield, for each package that findings wait for, the command that installs it."""
    for requirement, number in sorted(total.missing.items()):
        waiting = "1 finding waits" if number == 1 else f"{number} findings wait"
        yield f"{waiting} for {requirement}: {shlex.join(_install_command([requirement]))}"


def _verdict_remarks(total: Collector) -> Iterator[str]:
    """Yield the numbers of definitions by verdict, where any was verified, and of files that were
    passed over."""
    if total.verdicts:
        counts = (f"{total.verdicts[word]} {word}" for word in ("proved", "unproven", "refuted"))
        yield f"definitions: {', '.join(counts)}"
    if total.passed_over:
        files = count(total.passed_over, "file")
        yield f"{files} of tests, examples and vendored code not rewritten: name them to do so"


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
