"""`regraft new rule` and `regraft test`: for those who write rules of their own."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from regraft.cli.shared_options import DIRECTORIES, PathType, paint, print_error, stop
from regraft.report.counted_nouns import count

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@click.group("new")
def new() -> None:
    """Write the files of something new: a rule."""


@new.command("rule")
@click.argument("name", metavar="PACK/NAME")
@click.option(
    "--rules",
    "directory",
    default="rules",
    metavar="DIRECTORY",
    show_default=True,
    help="Where the packs of your own are.",
    type=PathType(file_okay=False, path_type=Path),
)
def new_rule(name: str, directory: Path) -> None:
    """Write a rule that works, with its page, to edit.

    Exits with 2 when a file of that name is there already.
    """
    from regraft.rules.loading import TEMPLATE

    pack, _, rule = name.partition("/")
    if not _NAME.fullmatch(pack) or not _NAME.fullmatch(rule):
        raise click.UsageError(
            f"{name!r} is not PACK/NAME: lower-case words with hyphens, such as my-pack/fast-gelu"
        )
    targets = {
        directory / pack / f"{rule}{kind}": TEMPLATE.with_suffix(kind) for kind in (".rule", ".md")
    }
    for target in targets:
        if target.exists():
            stop(f"{target} exists already; nothing is written")
    try:
        (directory / pack).mkdir(parents=True, exist_ok=True)
        for target, template in targets.items():
            target.write_text(template.read_text("utf-8").replace("NAME", rule), "utf-8")
            click.echo(f"wrote {target}")
    except OSError as error:
        stop(f"{directory / pack} cannot be written: {error.strerror or error}")
    click.echo(f"try it: regraft test {pack}/{rule} --rules {directory}")


@click.command("test")
@click.argument("selectors", nargs=-1, required=True, metavar="PACK...")
@DIRECTORIES
def test_command(selectors: Sequence[str], directories: Sequence[Path]) -> None:
    """Run the examples on the pages of rules: PACK, PACK/RULE or RULE.

    Exits with 0 when every example holds, 1 when one does not, 2 when a rule cannot be loaded.
    """
    from regraft.rules import BUILT_IN, load_rules, page_examples
    from regraft.scanning import compile_rules
    from regraft.scanning.rule_page_tests import check_page

    rules, problems = load_rules(selectors, (), (BUILT_IN, *directories))
    compiled, uncompiled = compile_rules(rules)
    for problem in (*problems, *uncompiled):
        print_error(problem.error)
    failures = [failure for rule in compiled for failure in check_page(rule)]
    for failure in failures:
        click.echo(
            f"{failure.path}:{failure.line} {paint('fails', fg='red', bold=True)}:"
            f" {failure.message}"
        )
        for line in failure.details:
            click.echo(f"  {line}")
    examples = sum(len(page_examples(rule.rule.page)) for rule in compiled)
    broken = f", {count(len(failures), 'failure')}" if failures else ""
    click.echo(f"{count(len(compiled), 'rule')}, {count(examples, 'example')}{broken}")
    sys.exit(2 if problems or uncompiled else int(bool(failures)))
