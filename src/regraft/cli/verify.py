"""The command `regraft verify`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regraft.cli.command_settings import (
    CONFIG,
    NO_CONFIG,
    RuleOptions,
    is_stated,
    load_chosen,
    settings_of,
    with_rule_options,
)
from regraft.cli.shared_options import (
    ALL,
    DIRECTORIES,
    DRIVER,
    IGNORE,
    KEEP,
    PASS_ENV,
    PATH,
    PYTHON,
    SANDBOX,
    SELECT,
    TARGET,
    UNSAFE,
    output_format,
    print_error,
    stop,
)
from regraft.cli.verdicts import containment_of, hide_from_git, print_verdicts, verdicts_of
from regraft.report.counted_nouns import count
from regraft.source.similar_names import suggest_path

if TYPE_CHECKING:
    from regraft.configuration import Settings
    from regraft.verification import Verdict
    from regraft.verification.containment import SandboxMode
    from regraft.verification.types import Contract, Effort


Versions = dict[str, tuple[bytes, bytes]]  # the original and the changed text, by file


class _SecondsType(click.types.FloatParamType):
    """A time limit in seconds."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        from regraft.configuration.settings import seconds

        try:
            return seconds(float(str(value)))
        except ValueError:
            self.fail(f"{value!r} is no number of seconds above 0, or too large.", param, ctx)


@click.command("verify")
@click.argument("original", type=PATH, required=False)
@click.argument("changed", type=PATH, required=False)
@click.option(
    "--diff-base",
    metavar="REF",
    help=(
        "Verify what the working tree changes since it left this branch or commit, below ORIGINAL"
        " or anywhere."
    ),
)
@CONFIG
@NO_CONFIG
@SELECT
@IGNORE
@ALL
@TARGET
@DIRECTORIES
@UNSAFE
@DRIVER
@PYTHON
@click.option(
    "--time-limit",
    type=_SecondsType(),
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
@SANDBOX
@PASS_ENV
@click.option(
    "--no-cache", is_flag=True, help="Run both versions also where the same was verified before."
)
@output_format("text", "json", "markdown", "html")
def verify_command(**values: Any) -> None:
    """Run ORIGINAL against CHANGED, or against itself with the rewrites applied that `regraft check
    --fix` offers.

    ORIGINAL may be a unified diff (.diff, .patch): then the files that it changes, below the
    current directory, are run against what it makes of them. With --diff-base the Python files that
    a branch changes are run against what they were. Exits with 0 when every change is
    proved, 1 when one is not, 2 on an error.
    """
    sys.exit(_run(VerifyOptions(**values)))


@dataclass(frozen=True, slots=True)
class VerifyOptions(RuleOptions):
    """The options of `regraft verify`, as its `--help` explains them."""

    original: Path | None
    changed: Path | None
    diff_base: str | None
    config: Path | None
    no_config: bool
    driver: str | None
    python: str
    time_limit: float
    effort: Effort
    contract: Contract
    keep: tuple[str, ...]
    sandbox: SandboxMode
    pass_env: tuple[str, ...]
    no_cache: bool
    form: str


def _run(options: VerifyOptions) -> int:
    """Verify what the options name, print the verdicts and return the exit status."""
    _check_combination(options)
    original = options.original or Path()
    ((settings, _),) = settings_of((original,), options.config, options.no_config)
    settings = with_rule_options(settings, options)
    versions: Versions = {}
    if options.diff_base is not None:
        name = Path(f"changes since {options.diff_base}")
        verdicts = _branch_verdicts(options.diff_base, original, options, settings, versions)
    else:
        name = original
        verdicts = _named_verdicts(original, options, settings, versions)
    _print_verdicts(name, verdicts, options.form, versions)
    return 0 if all(verdict.status == "proved" for verdict in verdicts) else 1


def _check_combination(options: VerifyOptions) -> None:
    """Raise UsageError for options that exclude each other."""
    chooses_rules = (
        options.select is not None
        or options.ignore
        or options.directories
        or options.applies_all
        or is_stated("target")
    )
    if options.diff_base is not None:
        if options.changed is not None or chooses_rules or options.unsafe:
            raise click.UsageError("--diff-base compares what git knows: no rules, no second file")
    elif options.original is None:
        raise click.UsageError("name the file to verify, or --diff-base REF")
    elif options.changed is not None and (chooses_rules or options.unsafe):
        raise click.UsageError(
            "two files are compared as they are: --select, --ignore, --all, --target, --rules and"
            " --unsafe are for one file"
        )


def _named_verdicts(
    original: Path, options: VerifyOptions, settings: Settings, versions: Versions
) -> tuple[Verdict, ...]:
    """Return the verdicts on a file against another one, a diff, or the rewrites of its rules, and
    add what was compared to `versions`."""
    from regraft.source.applied_diff import is_diff

    is_own_rewrite = options.changed is None and not is_diff(original)
    if options.changed is None and is_diff(original):
        changed_by_file = _versions_after(original)
    else:
        changed_by_file = {original: _changed_bytes(original, options.changed, settings)}
    verdicts: list[Verdict] = []
    for file, changed_bytes in changed_by_file.items():
        verdicts += _verdicts(file, changed_bytes, options, settings, is_own_rewrite)
        versions[str(file)] = file.read_bytes(), changed_bytes
    return tuple(verdicts)


def _branch_verdicts(
    reference: str, path: Path, options: VerifyOptions, settings: Settings, versions: Versions
) -> tuple[Verdict, ...]:
    """Return the verdicts on the files that a branch changes, one file after the other, and add
    what was compared to `versions`. The files before it are as the branch has them, those after it
    as they were, so that the verdicts together speak of the whole change."""
    from regraft.source.git import GitError, changes_since, write_tree

    tree = Path(".cache", "regraft", "base")  # reproducers name its files
    verdicts: list[Verdict] = []
    try:
        changes = changes_since(reference, path)
        if changes.modified:
            write_tree(changes, tree)
            hide_from_git()
    except GitError as error:
        stop(f"--diff-base {reference}: {error}")
    for name in changes.modified:
        _check_text((changes.top / name).read_bytes(), _shown_path(changes.top / name))
    for name in changes.added:
        click.echo(f"{name}: added, nothing to compare it with", err=True)
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes((changes.top / name).read_bytes())
    for name in changes.modified:
        new = (changes.top / name).read_bytes()
        versions[name] = (tree / name).read_bytes(), new
        file_verdicts = _verdicts(
            tree / name,
            new,
            options,
            settings,
            False,
            driver=settings.driver_of(changes.top / name),
            shown=_shown_path(changes.top / name),
        )
        verdicts += (replace(verdict, file=name) for verdict in file_verdicts)
        (tree / name).write_bytes(new)
    for name in changes.deleted:
        click.echo(f"{name}: deleted, nothing to compare it with", err=True)
    return tuple(verdicts)


def _shown_path(path: Path) -> Path:
    """Return a path as the user would type it: relative where it is below the working directory."""
    relative = Path(os.path.relpath(path))
    return path if ".." in relative.parts else relative


def _verdicts(
    file: Path,
    changed: bytes,
    options: VerifyOptions,
    settings: Settings,
    is_own_rewrite: bool,
    driver: str | None = None,
    shown: Path | None = None,
) -> tuple[Verdict, ...]:
    """Return the verdicts on a changed version of a file, by the options, else by the settings.

    driver  that of the settings for the file, where it stands in for another one
    shown   the path that messages have, where `file` is a copy
    """
    from regraft.verification.types import Terms

    def choose(name: str, default: Any) -> Any:
        return getattr(options, name) if is_stated(name) else default

    terms = Terms(
        choose("effort", settings.effort),
        choose("contract", settings.contract),
        choose("keep", settings.keep),
    )
    if is_own_rewrite:
        terms = terms.for_rules(tested=not settings.rules and not settings.unsafe)
    return verdicts_of(
        file,
        changed,
        options.driver or driver or settings.driver_of(file),
        choose("time_limit", settings.time_limit),
        choose("python", settings.python or options.python),
        not options.no_cache,
        terms,
        containment_of(options.sandbox, options.pass_env),
        shown=shown,
    )


def _versions_after(diff: Path) -> dict[Path, bytes]:
    """Return the changed versions of the files that a diff changes; exit where it does not fit."""
    from regraft.source.applied_diff import DiffError, new_versions

    try:
        return new_versions(diff, Path())
    except DiffError as error:
        stop(f"{diff}: {error}")


def _print_verdicts(
    original: Path, verdicts: Sequence[Verdict], form: str, versions: Versions
) -> None:
    """Print the verdicts in the output format `form`: json, markdown, html or text."""
    if form == "json":
        from regraft.verification import to_json

        click.echo(json.dumps(to_json(verdicts), indent=1))
    elif form == "html":
        from regraft.report.html.evidence import verify_page
        from regraft.verification import to_json

        click.echo(verify_page(str(original), to_json(verdicts)["verdicts"], versions))
    elif form == "markdown":
        from regraft.report.certificate import certificate

        click.echo(certificate(str(original), verdicts))
    else:
        print_verdicts(verdicts)
        if not verdicts:
            click.echo(f"{original}: nothing changed, nothing to verify")


def _text_of(changed: Path) -> bytes:
    """Return the content of a changed version; exit where it cannot be read or does not parse."""
    try:
        text = changed.read_bytes()
    except OSError as error:
        stop(f"{changed}: cannot be read: {error.strerror}{suggest_path(changed)}")
    _check_text(text, changed)
    return text


def _check_text(text: bytes, path: Path) -> None:
    """Exit where the text of a changed version does not parse."""
    from regraft.verification import VerifyError, check_syntax

    try:
        check_syntax(text, path)
    except VerifyError as error:
        stop(str(error))


def _changed_bytes(original: Path, changed: Path | None, settings: Settings) -> bytes:
    """Return the changed version: that of the second file, else the original with its fixable
    findings applied."""
    from regraft.scanning import RuleDefect, check_file, rewrite_file
    from regraft.scanning.rule_selection import rules_for

    if changed is not None:
        return _text_of(changed)
    rules, problems = load_chosen(settings)
    rules = rules_for(original, rules, settings)
    report = check_file(original, rules)
    errors = [*problems, *report.errors]
    if errors:
        for source_error in errors:
            print_error(source_error)
        sys.exit(2)
    withheld = sum(not finding.fixable for finding in report.findings)
    if withheld and withheld == len(report.findings):
        places = count(withheld, "place")
        click.echo(f"{original}: {places} withheld: regraft check --explain says why", err=True)
    try:
        return rewrite_file(report, rules)[0]
    except RuleDefect as defect:
        stop(str(defect.error))
