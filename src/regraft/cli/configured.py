"""The settings that a command works with: those of the configuration file, below the options that
the command line states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from regraft.cli.shared import PATH, as_error, compile_loaded_rules, print_error, split_words, stop

if TYPE_CHECKING:
    from regraft.configuration import ConfigurationError, Settings
    from regraft.configuration.settings import TargetName
    from regraft.rules import RuleProblem
    from regraft.scanning import CompiledRule, FileReport, Finding
    from regraft.scanning.baseline import Baseline
    from regraft.source.text import SourceError

CONFIG = click.option(
    "--config",
    type=PATH,
    metavar="FILE",
    help=(
        "Read this configuration file instead of the nearest regraft.toml or [tool.regraft] in"
        " pyproject.toml."
    ),
)
NO_CONFIG = click.option("--no-config", is_flag=True, help="Read no configuration file.")


def is_stated(option: str) -> bool:
    """Return whether the command line states an option of the running command."""
    source = click.get_current_context().get_parameter_source(option)
    return source is click.core.ParameterSource.COMMANDLINE


def settings_of(
    paths: Sequence[Path], config: Path | None, no_config: bool
) -> list[tuple[Settings, list[Path]]]:
    """Return the paths by the settings that hold for them; print the errors of a configuration file
    and exit."""
    from regraft.configuration import ConfigurationError, Settings, group_by_settings, read

    if config is not None and no_config:
        raise click.UsageError("--config and --no-config exclude each other")
    try:
        if no_config:
            return [(Settings(), list(paths))]
        if config is None:
            return group_by_settings(paths)
        settings = read(config)
    except ConfigurationError as error:
        stop_for(error)
    if settings is None:
        raise click.UsageError(f"{config} has no [tool.regraft]")
    return [(settings, list(paths))]


def stop_for(error: ConfigurationError) -> NoReturn:
    """Print the errors of a configuration file and exit with status 2."""
    for source_error in error.errors:
        print_error(source_error)
    click.get_current_context().exit(2)


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """The options by which `check`, `verify` and `baseline write` choose rules."""

    select: str | None
    ignore: str
    applies_all: bool
    target: TargetName
    directories: tuple[Path, ...]
    unsafe: bool


def with_rule_options(settings: Settings, options: RuleOptions) -> Settings:
    """Return the settings with the options that choose rules.

    `--select` replaces what the file selects and ignores, `--ignore` what it ignores; directories
    of rules are added.
    """
    if options.select is not None:
        if not split_words(options.select):
            raise click.UsageError("--select names no rule")
        settings = replace(settings, select=tuple(split_words(options.select)), ignore=())
    if options.ignore:
        settings = replace(settings, ignore=tuple(split_words(options.ignore)))
    if is_stated("unsafe"):
        settings = replace(settings, unsafe=options.unsafe)
    if is_stated("target"):
        settings = replace(settings, target=options.target)
    return replace(
        settings,
        rules=(*settings.rules, *options.directories),
        applies_all=options.applies_all,
    )


def load_chosen(settings: Settings) -> tuple[tuple[CompiledRule, ...], list[SourceError]]:
    """Return the rules of the settings, and what is wrong with them or with their selectors.

    Where nothing selects rules, those are withheld that do not pay on the target.
    """
    from regraft.rules import BUILT_IN, load_rules
    from regraft.rules.loading import check_selectors, rule_paths
    from regraft.rules.worth import chosen_target
    from regraft.scanning import with_worth

    directories = (BUILT_IN, *settings.rules)
    rules, problems = load_rules(settings.select or (), settings.ignore, directories)
    ignored_by_file = [text for texts in settings.per_file_ignores.values() for text in texts]
    if ignored_by_file:
        problems = (*problems, *check_selectors(ignored_by_file, rule_paths(directories)))
    compiled, compile_problems = compile_loaded_rules(rules, problems, settings.unsafe)
    is_explicit = settings.select is not None or settings.applies_all
    remedy = "" if is_explicit else "--all or --select"
    judged = with_worth(compiled, chosen_target(settings.target), remedy)
    return judged, [_located(problem, settings) for problem in compile_problems]


def _located(problem: RuleProblem, settings: Settings) -> SourceError:
    """Return a problem as an error; that of a selector of the configuration file gets its place."""
    from regraft.source.text import SourceError

    key = next(_keys_of(problem.path, settings), "") if not problem.line else ""
    if not key:
        return as_error(problem)
    message = f"`{key}` names {problem.path}: {problem.message}"
    return SourceError(str(settings.path), settings.lines[key], 0, message)


def _keys_of(selector: str, settings: Settings) -> Iterator[str]:
    """Yield the keys of the configuration file that state a selector."""
    ignored_by_file = [text for texts in settings.per_file_ignores.values() for text in texts]
    for key, selectors, option in (
        ("select", settings.select or (), "select"),
        ("ignore", settings.ignore, "ignore"),
        ("per-file-ignores", ignored_by_file, ""),
    ):
        if key in settings.lines and selector in selectors and not (option and is_stated(option)):
            yield key


def rules_for(
    file: Path, rules: tuple[CompiledRule, ...], settings: Settings
) -> tuple[CompiledRule, ...]:
    """Return the rules less those that the settings ignore in a file."""
    from regraft.rules.loading import is_selected

    selectors = settings.ignored_in(file)
    if not selectors:
        return rules
    return tuple(rule for rule in rules if not is_selected(rule.rule.id, selectors))


def only_rules(report: FileReport, rules: Sequence[CompiledRule]) -> FileReport:
    """Return the report of a file as these rules alone give it, with their worth."""
    worths = {rule.rule.id: rule.worth for rule in rules}
    return replace(
        report,
        findings=tuple(
            replace(finding, worth=worths[finding.rule.id])
            for finding in report.findings
            if finding.rule.id in worths
        ),
        misses=tuple(miss for miss in report.misses if miss.rule.id in worths),
    )


def without_gainless(
    report: FileReport, rules: Sequence[CompiledRule]
) -> tuple[FileReport, tuple[Finding, ...]]:
    """Return the report without the findings that are withheld because they gain nothing, and those
    findings."""
    gainless_rules = {rule.rule.id for rule in rules if rule.gainless}
    shown: list[Finding] = []
    gainless: list[Finding] = []
    for finding in report.findings:
        (gainless if finding.rule.id in gainless_rules else shown).append(finding)
    return replace(report, findings=tuple(shown)), tuple(gainless)


def ignore_complaints(
    report: FileReport, rules: Sequence[CompiledRule], settings: Settings, are_all_active: bool
) -> Iterator[SourceError]:
    """Yield what is wrong with the comments of a file that ignore findings.

    are_all_active  whether the rules are those of the project, without a choice by options
    """
    if not report.ignores:
        return
    from regraft.rules import BUILT_IN
    from regraft.rules.loading import rule_paths
    from regraft.scanning.ignores import ignore_warnings

    yield from ignore_warnings(
        report.file,
        report.ignores,
        [rule.rule.id for rule in rules],
        rule_paths((BUILT_IN, *settings.rules)),
        are_all_active,
    )


def read_baseline(settings: Settings, path: Path | None, no_baseline: bool) -> Baseline | None:
    """Return the baseline of the option or of the settings; None without one; exit for one that
    cannot be read."""
    from regraft.scanning.baseline import BaselineError, read

    if path is not None and no_baseline:
        raise click.UsageError("--baseline and --no-baseline exclude each other")
    chosen = None if no_baseline else path or settings.baseline
    try:
        return read(chosen) if chosen is not None else None
    except BaselineError as error:
        stop(str(error))
