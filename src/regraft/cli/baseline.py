"""The commands `regraft baseline write` and `regraft baseline show`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regraft.cli.command_settings import (
    CONFIG,
    RuleOptions,
    load_chosen,
    read_baseline,
    settings_of,
    with_rule_options,
)
from regraft.cli.shared_options import (
    ALL,
    DIRECTORIES,
    IGNORE,
    PATH,
    PATHS,
    SELECT,
    TARGET,
    UNSAFE,
    print_error,
    stop,
)
from regraft.report.counted_nouns import count

if TYPE_CHECKING:
    from regraft.scanning import Finding

FILE = click.option(
    "--file",
    type=PATH,
    metavar="FILE",
    help="The baseline; the configuration's, else regraft.baseline.json, if not given.",
)


@click.group("baseline")
def baseline_command() -> None:
    """Accept the findings of today, so that `regraft check` fails for new ones only."""


@baseline_command.command("write")
@PATHS
@FILE
@CONFIG
@SELECT
@IGNORE
@ALL
@TARGET
@DIRECTORIES
@UNSAFE
def write_command(**values: Any) -> None:
    """Write the findings of PATHS that could be fixed into the baseline, which is replaced.

    Exits with 2 when a file or a rule could not be read; then nothing is written.
    """
    _write(WriteOptions(**values))


@dataclass(frozen=True, slots=True)
class WriteOptions(RuleOptions):
    """The options of `regraft baseline write`, as its `--help` explains them."""

    paths: tuple[Path, ...]
    file: Path | None
    config: Path | None


def _write(options: WriteOptions) -> None:
    """Write the baseline of the options; print errors and exit where there are some."""
    from regraft.scanning import FileSearch
    from regraft.scanning.baseline import NAME, entries_of, write
    from regraft.scanning.parallel import Task, scan_files
    from regraft.scanning.rule_selection import only_rules, rules_for

    groups = settings_of(options.paths, options.config, no_config=False)
    if len(groups) > 1:
        raise click.UsageError("the paths have several configuration files: one baseline for each")
    settings = with_rule_options(groups[0][0], options)
    rules, problems = load_chosen(settings)
    errors = [*problems]
    search = FileSearch(settings.exclude, settings.respect_gitignore)
    findings: list[Finding] = []
    for report in scan_files([*search.python_files(options.paths)], Task(rules), settings.jobs):
        errors += report.errors
        findings += only_rules(report, rules_for(Path(report.file), rules, settings)).findings
    if errors:
        for error in errors:
            print_error(error)
        stop("nothing is written")
    target = options.file or settings.baseline or Path(NAME)
    entries = entries_of(target, findings)
    try:
        write(target, entries)
    except OSError as error:
        stop(f"{target}: cannot write: {error.strerror or error}")
    total = sum(entry.count for entry in entries)
    click.echo(f"{target}: {count(total, 'finding')} accepted")
    if target != settings.baseline:
        click.echo(
            f'use it: regraft check --baseline {target}, or `baseline = "{target}"` in'
            " the configuration"
        )


@baseline_command.command("show")
@FILE
@CONFIG
def show_command(file: Path | None, config: Path | None) -> None:
    """Print the findings that the baseline accepts."""
    from regraft.scanning.baseline import NAME

    ((settings, _),) = settings_of((Path(),), config, no_config=False)
    baseline = read_baseline(settings, file or settings.baseline or Path(NAME), no_baseline=False)
    assert baseline is not None
    for entry in baseline.entries:
        times = f" ({entry.count} times)" if entry.count > 1 else ""
        click.echo(f"{entry.file}: {entry.rule} in {entry.scope}{times}")
    total = sum(entry.count for entry in baseline.entries)
    click.echo(f"{baseline.path}: {count(total, 'finding')} accepted")
