"""The work of `regraft check`: files are scanned, reported, and rewritten where asked."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from regraft.cli.check_options import STDIN, CheckOptions, check_combination
from regraft.cli.command_settings import (
    ignore_complaints,
    is_stated,
    load_chosen,
    read_baseline,
    settings_of,
    with_rule_options,
)
from regraft.cli.remarks import offer_install, remarks_on
from regraft.cli.shared_options import STREAMS, load_locked, lock_file
from regraft.report.formats import FORMATS, Output, Quiet
from regraft.report.terminal import is_terminal
from regraft.source.garbage_collection import uncollected

if TYPE_CHECKING:
    from regraft.cli.fix import Policy
    from regraft.configuration import Settings
    from regraft.report.json_report import Collector
    from regraft.scanning import CompiledRule, FileReport
    from regraft.scanning.baseline import Baseline
    from regraft.source.text import SourceError
    from regraft.source.undo import UndoLog


def run(options: CheckOptions) -> int:
    """Check the files of the options and return the exit status.

    Garbage is collected between files alone. What is alive at the end lives as long as the process,
    and is not searched for garbage when that ends.
    """
    check_combination(options)
    with uncollected():
        status = _check(options)
        gc.freeze()
    return status


def _check(options: CheckOptions) -> int:
    """Check the files of the options and return the exit status."""
    from regraft.report.json_report import Collector
    from regraft.source.undo import UndoLog

    started = time.perf_counter()
    total = Collector(options.explain, is_fixing=options.fix)
    is_silent = options.show_diff or options.quiet
    output = (Quiet if is_silent else FORMATS[options.form])(STREAMS)
    undo = UndoLog()
    for settings, paths in _groups(options):
        _GroupRun(options, settings, paths, total, output, undo).run()
    remarks = [*remarks_on(total, options.statistics), *undo.remarks()]
    output.finish(total, time.perf_counter() - started, remarks)
    if options.install and total.missing and not offer_install(sorted(total.missing)):
        return 2
    return total.exit_status


def _groups(options: CheckOptions) -> Iterator[tuple[Settings, list[Path]]]:
    """Yield the paths by the settings that hold for them, below the options."""
    from regraft.source.path_patterns import PathPatterns

    named = (options.stdin_filename or Path(),) if STDIN in options.paths else options.paths
    for settings, paths in settings_of(named, options.config, options.no_config):
        chosen = with_rule_options(settings, options)
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
    undo: UndoLog

    def run(self) -> None:
        """Report the files, and show or write what the rules make of them."""
        from regraft.scanning.edits_by_finding import edits_of
        from regraft.scanning.rule_selection import rules_for

        rules, problems = self._chosen_rules()
        self.total.errors += problems
        if problems:
            return  # other rules than the user means would rewrite the files
        baseline = read_baseline(self.settings, self.options.baseline, self.options.no_baseline)
        rewrites = self.options.show_diff or self.options.fix
        for report in self._reports(rules):
            file_rules = rules_for(Path(report.file), rules, self.settings)
            shown = self._shown(report, file_rules, baseline)
            if self.output.shows_edits and any(finding.fixable for finding in shown.findings):
                patched = _with_patches(report, rules, vendor=False)
                self.total.add(replace(shown, source=patched.source), edits_of(patched))
            else:
                self.total.add(shown)
            self.output.add(shown)
            if rewrites and shown.findings:
                self.total.count_remaining(shown, self._rewrite(shown, file_rules, baseline))
            elif self.options.add_ignores and shown.findings:
                self.total.count_remaining(shown, self._add_ignores(shown))
            else:
                self.total.count_remaining(shown)

    def _shown(
        self, report: FileReport, rules: Sequence[CompiledRule], baseline: Baseline | None
    ) -> FileReport:
        """Return the report of a file with what is to be reported: findings of these rules that the
        baseline does not accept, and without `--explain` none that gain nothing; add what is wrong
        with its ignores to the totals."""
        from regraft.scanning.rule_selection import only_rules, without_gainless

        shown = only_rules(report, rules)
        self.total.warnings += ignore_complaints(
            shown, rules, self.settings, not (self.options.select or self.options.ignore)
        )
        if not self.options.explain:
            shown, gainless = without_gainless(shown, rules)
            self.total.gainless.update(
                finding.worth.target for finding in gainless if finding.worth is not None
            )
        if baseline is not None:
            shown, number = baseline.without_accepted(shown)
            self.total.accepted += number
        return shown

    def _add_ignores(self, report: FileReport) -> int:
        """Write comments that ignore the fixable findings of a file; return the number of those
        that have no place for one."""
        from regraft.scanning.ignore_comments import add_comments
        from regraft.source import text

        findings = [finding for finding in report.findings if finding.fixable]
        source = report.source or text.read(Path(report.file))
        if not findings or isinstance(source, text.SourceError):
            return len(findings)
        changed, homeless = add_comments(source, findings)
        error = text.write(source, changed)
        if error is not None:
            self.total.errors.append(error)
            return len(findings)
        self.total.errors += (
            text.SourceError(
                finding.file,
                *finding.start,
                f"no comment fits on this line, which ignores {finding.rule.id}: add the rule to"
                " per-file-ignores",
            )
            for finding in homeless
        )
        self.total.ignores_added += len(findings) - len(homeless)
        return len(homeless)

    def _chosen_rules(self) -> tuple[tuple[CompiledRule, ...], list[SourceError]]:
        """Return the rules of the settings or of the lock file, and what is wrong with them."""
        from regraft.rules.worth import chosen_target
        from regraft.scanning import with_worth

        options, settings = self.options, self.settings
        stated = options.select is not None or bool(options.ignore) or options.applies_all
        lock_path = lock_file(options.lock, not options.no_lock, stated)
        chosen_by_file = settings.select is not None or bool(settings.ignore)
        if lock_path is None or (options.lock is None and chosen_by_file):
            return load_chosen(settings)
        rules, problems = load_locked(lock_path, settings.rules, unsafe=settings.unsafe)
        rules = with_worth(rules, chosen_target(settings.target))
        return rules, [problem.error for problem in problems]

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
        is_cached = not any(
            (
                options.no_cache,
                options.show_diff,
                options.fix,
                options.explain,
                options.add_ignores,
            )
        )
        task = Task(rules, options.explain, cache_directory() if is_cached else None)
        yield from _with_progress(scan_files(files, task, self.settings.jobs), len(files))

    def _rewrite(
        self, report: FileReport, rules: Sequence[CompiledRule], baseline: Baseline | None
    ) -> int:
        """Show or write what the rules make of a file; return the number of findings that could
        be fixed and are not.

        Files of tests, examples and vendored code below the paths are only reported.
        """
        from regraft.cli.fix import Rewriter
        from regraft.scanning import is_secondary

        options = self.options
        if options.fix and is_secondary(Path(report.file), self.paths):
            self.total.passed_over += 1
            return sum(finding.fixable for finding in report.findings)
        rewriting = Rewriter(
            rules,
            self._policy_for(Path(report.file)),
            options.fix,
            options.vendor,
            self.output.is_document or options.quiet,
            self.total.verdicts,
            lambda finding: baseline is None or not baseline.accepts(report.file, finding),
            self.undo,
        ).rewrite(_with_patches(report, rules, options.vendor))
        self.total.errors += rewriting.errors
        return rewriting.remaining

    def _policy_for(self, file: Path) -> Policy:
        """Return the policy for a file: by the options, else by the settings."""
        from regraft.cli.fix import chosen_policy
        from regraft.cli.verdicts import containment_of

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
        containment = containment_of(options.sandbox, options.pass_env) if policy.prove else None
        return replace(
            policy, driver=driver, time_limit=settings.time_limit, containment=containment
        )


def _stdin_report(
    filename: Path | None, rules: tuple[CompiledRule, ...], explain: bool
) -> FileReport:
    """Return the report of the text on standard input."""
    from regraft.scanning import check_text

    return check_text(str(filename or "<stdin>"), sys.stdin.buffer.read(), rules, explain)


def _with_patches(report: FileReport, rules: Sequence[CompiledRule], vendor: bool) -> FileReport:
    """Return the report with its patches, which are not handed from process to process."""
    from regraft.cli.fix import home_of
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
