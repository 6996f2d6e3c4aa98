"""The settings that a command works with: those of the configuration file, below the options that
the command line states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from regraft.cli.shared_options import PATH, print_error, split_words, stop

if TYPE_CHECKING:
    from regraft.configuration import ConfigurationError, Settings
    from regraft.configuration.settings import TargetName
    from regraft.scanning import CompiledRule, FileReport
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
    if "line-length" in settings.lines:
        click.echo(
            f"{config}: line-length has no effect in a file that --config names; state it in the"
            " configuration above the files",
            err=True,
        )
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


def with_rule_options(
    settings: Settings, options: RuleOptions, select_option: str = "--select"
) -> Settings:
    """Return the settings with the options that choose rules.

    `select_option` replaces what the file selects and ignores, `--ignore` what it ignores;
    directories of rules are added.
    """
    select = None if options.select is None else tuple(split_words(options.select))
    if select == ():
        raise click.UsageError(f"{select_option} names no rule")
    ignore = tuple(split_words(options.ignore)) if options.ignore else None
    settings = settings.selecting(select, ignore)
    if is_stated("unsafe"):
        settings = replace(settings, unsafe=options.unsafe)
    if is_stated("target"):
        settings = replace(settings, target=options.target)
    return replace(
        settings,
        rules=(*settings.rules, *options.directories),
        applies_all=options.applies_all,
    )


@dataclass(frozen=True, slots=True)
class SubjectOptions:
    """The options that the commands share which measure a model, as their `--help` explains them;
    `subject` is the function that returns the model."""

    subject: str
    config: Path | None
    no_config: bool
    packs: str | None
    ignore: str
    directories: tuple[Path, ...]
    mode: str
    threads: int
    unsafe: bool
    form: str

    def settings(self, target: TargetName) -> Settings:
        """Return the settings, with the options, for the model on a target: those for the file of
        `FILE.py:FUNCTION`, and those for the working directory where the subject is
        `MODULE:FUNCTION`."""
        file = self.subject.rpartition(":")[0]
        path = Path(file if file.endswith(".py") else "")
        ((settings, _),) = settings_of([path], self.config, self.no_config)
        options = RuleOptions(
            select=self.packs,
            ignore=self.ignore,
            applies_all=True,
            target=target,
            directories=self.directories,
            unsafe=self.unsafe,
        )
        return with_rule_options(settings, options, "--packs")


def load_chosen(settings: Settings) -> tuple[tuple[CompiledRule, ...], list[SourceError]]:
    """Return the rules of the settings, and what is wrong with them or with their selectors; their
    reasons name the options by which withheld places are rewritten."""
    from regraft.scanning.rule_selection import selected_rules

    return selected_rules(settings, unsafe_remedy="--unsafe", worth_remedy="--all or --select")


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
    from regraft.scanning.ignore_comments import ignore_warnings

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
    if path is not None and no_baseline:
        raise click.UsageError("--baseline and --no-baseline exclude each other")
    chosen = None if no_baseline else path or settings.baseline
    if chosen is None:
        return None
    from regraft.scanning.baseline import BaselineError, read

    try:
        return read(chosen)
    except BaselineError as error:
        stop(str(error))
