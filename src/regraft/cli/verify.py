"""The command `regraft verify`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from regraft.cli.shared import (
    DIRECTORIES,
    DRIVER,
    IGNORE,
    KEEP,
    PATH,
    PYTHON,
    SELECT,
    UNSAFE,
    as_error,
    load,
    print_error,
    print_verdict,
    stop,
    verdicts_of,
)

if TYPE_CHECKING:
    from regraft.verify import Verdict
    from regraft.verify.types import Contract, Effort


@click.command("verify")
@click.argument("original", type=PATH)
@click.argument("changed", type=PATH, required=False)
@SELECT
@IGNORE
@DIRECTORIES
@UNSAFE
@DRIVER
@PYTHON
@click.option(
    "--time-limit",
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Processor time for each file; on the clock it may take four times as long.",
)
@click.option(
    "--effort",
    type=click.Choice(["low", "default", "high"]),
    default="default",
    show_default=True,
    help=(
        "low: the inputs that models are first run on; default: also other masks, sizes, values,"
        " modes and fields; high: these for every instance and model, and three times as many"
        " mutants."
    ),
)
@click.option(
    "--contract",
    type=click.Choice(["strict", "results"]),
    default="strict",
    show_default=True,
    help=(
        "strict: everything that a caller can observe, hooks on submodules among it; results:"
        " outputs, gradients, random numbers and checkpoints only, for edits by hand."
    ),
)
@KEEP
@click.option(
    "--no-cache", is_flag=True, help="Run both versions also where the same was verified before."
)
@click.option(
    "--output-format",
    "form",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
)
def verify_command(
    original: Path,
    changed: Path | None,
    select: str | None,
    ignore: str,
    directories: tuple[Path, ...],
    unsafe: bool,
    driver: str | None,
    python: str,
    time_limit: float,
    effort: Effort,
    contract: Contract,
    keep: tuple[str, ...],
    no_cache: bool,
    form: str,
) -> None:
    """Run ORIGINAL against CHANGED, or against itself with the rewrites applied that `regraft check
    --fix` offers.

    ORIGINAL may be a unified diff (.diff, .patch): then the files that it changes, below the
    current directory, are run against what it makes of them. Exits with 0 when every change is
    proved, 1 when one is not, 2 on an error.
    """
    from regraft.source.diff import is_diff
    from regraft.verify.types import Terms

    if changed is not None and (select is not None or ignore or directories or unsafe):
        raise click.UsageError(
            "two files are compared as they are: --select, --ignore, --rules and --unsafe are for"
            " one file"
        )
    if is_diff(original) and changed is None:
        versions = _versions_after(original)
    else:
        versions = {
            original: _changed_bytes(original, changed, select, ignore, directories, unsafe)
        }
    is_own_rewrite = changed is None and not is_diff(original)
    terms = Terms(effort, contract, keep)
    terms = terms.for_rules(tested=not directories and not unsafe) if is_own_rewrite else terms
    verdicts = tuple(
        verdict
        for file, changed_bytes in versions.items()
        for verdict in verdicts_of(
            file, changed_bytes, driver, time_limit, python, not no_cache, terms
        )
    )
    _print_verdicts(original, verdicts, form)
    sys.exit(0 if all(verdict.status == "proved" for verdict in verdicts) else 1)


def _versions_after(diff: Path) -> dict[Path, bytes]:
    """Return the changed versions of the files that a diff changes; exit where it does not fit."""
    from regraft.source.diff import DiffError, new_versions

    try:
        return new_versions(diff, Path())
    except DiffError as error:
        stop(f"{diff}: {error}")


def _print_verdicts(original: Path, verdicts: Sequence[Verdict], form: str) -> None:
    """Print the verdicts in the output format `form`: json, markdown or text."""
    if form == "json":
        from regraft.verify import to_json

        click.echo(json.dumps(to_json(verdicts), indent=1))
    elif form == "markdown":
        from regraft.report.certificate import certificate

        click.echo(certificate(str(original), verdicts))
    else:
        for verdict in verdicts:
            print_verdict(verdict)
        if not verdicts:
            click.echo(f"{original}: nothing changed, nothing to verify")


def _changed_bytes(
    original: Path,
    changed: Path | None,
    select: str | None,
    ignore: str,
    directories: Sequence[Path],
    unsafe: bool,
) -> bytes:
    """Return the changed version: that of the second file, else the original with its fixable
    findings applied."""
    from regraft.scanning import RuleDefect, check_file, rewrite_file

    if changed is not None:
        try:
            return changed.read_bytes()
        except OSError as error:
            stop(f"{changed}: {error.strerror}")
    rules, problems = load(select, ignore, directories, unsafe=unsafe)
    report = check_file(original, rules)
    errors = [*(as_error(problem) for problem in problems), *report.errors]
    if errors:
        for source_error in errors:
            print_error(source_error)
        sys.exit(2)
    try:
        return rewrite_file(report, rules)[0]
    except RuleDefect as defect:
        stop(str(defect.error))
