"""The command `regraft undo`."""

from __future__ import annotations

import sys

import click

from regraft.cli.shared_options import print_error, stop
from regraft.report.counted_nouns import count


@click.command("undo")
def undo_command() -> None:
    """Take back what the last `regraft check --fix` in this folder wrote.

    Files that have changed since stay as they are, with an error that says where their text of
    before is. Exits with 2 where a file stays, and where nothing is stored.
    """
    from regraft.source.undo import DIRECTORY, as_errors, undo_last

    try:
        undone = undo_last()
    except ValueError as error:
        stop(str(error))
    if not undone:
        stop(f"no rewrite is stored in {DIRECTORY}: `regraft check --fix` writes it where it runs")
    errors = as_errors(undone)
    for problem in errors:
        print_error(problem)
    click.echo(f"{count(len(undone) - len(errors), 'file')} taken back")
    sys.exit(2 if errors else 0)
