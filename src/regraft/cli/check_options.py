"""The options of `regraft check`, and which of them go together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from regraft.cli.command_settings import RuleOptions, is_stated
from regraft.report.formats import FORMATS

if TYPE_CHECKING:
    from regraft.verification.containment import SandboxMode

STDIN = Path("-")


@dataclass(frozen=True, slots=True)
class CheckOptions(RuleOptions):
    """The options of `regraft check`, as its `--help` explains them."""

    paths: tuple[Path, ...]
    config: Path | None
    no_config: bool
    exclude: tuple[str, ...]
    force_exclude: bool
    no_gitignore: bool
    stdin_filename: Path | None
    lock: Path | None
    no_lock: bool
    baseline: Path | None
    no_baseline: bool
    add_ignores: bool
    show_diff: bool
    fix: bool
    out: Path | None
    prove: bool | None
    unproven: bool
    driver: str | None
    keep: tuple[str, ...]
    sandbox: SandboxMode
    pass_env: tuple[str, ...]
    python: str
    vendor: bool
    install: bool
    explain: bool
    jobs: int
    no_cache: bool
    statistics: bool
    quiet: bool
    form: str


def check_combination(options: CheckOptions) -> None:
    """Raise UsageError for options that exclude each other, or that need another one."""
    with_fix = {
        "--verify": options.prove,
        "--unproven": options.unproven,
        "--vendor": options.vendor,
        "--out": options.out,
        "--keep": options.keep,
        "--sandbox": is_stated("sandbox"),
        "--pass-env": options.pass_env,
        "--driver": options.driver,
    }
    chosen = [name for name, value in with_fix.items() if value]
    shows_vendored_diff = options.show_diff and options.vendor and not options.out
    if options.show_diff and options.fix:
        raise click.UsageError("--diff and --fix exclude each other")
    if options.add_ignores and (options.show_diff or options.fix):
        raise click.UsageError("--add-ignores excludes --diff and --fix")
    if chosen and not (shows_vendored_diff or options.fix):
        verb = "goes" if len(chosen) == 1 else "go"
        raise click.UsageError(f"{', '.join(chosen)} {verb} with --fix")
    _check_output(options)
    _check_paths(options)


def _check_output(options: CheckOptions) -> None:
    """Raise UsageError for options that want two kinds of output."""
    if options.show_diff and FORMATS[options.form].is_document:
        raise click.UsageError(
            f"--diff prints a diff, --output-format {options.form} prints a document: choose one"
        )
    if options.quiet and (options.show_diff or FORMATS[options.form].is_document):
        raise click.UsageError("--quiet prints no findings: no diff and no document")


def _check_paths(options: CheckOptions) -> None:
    """Raise UsageError where several files or standard input are combined with what needs one
    file."""
    if options.driver and (len(options.paths) > 1 or options.paths[0].is_dir()):
        raise click.UsageError("--driver is for one file: name the file that its model is in")
    if STDIN not in options.paths:
        if options.stdin_filename is not None:
            raise click.UsageError("--stdin-filename goes with the path -")
    elif len(options.paths) > 1:
        raise click.UsageError("- stands for standard input and is the only path")
    elif options.fix or options.add_ignores:
        raise click.UsageError("- is no file that could be written: --diff prints the change")
