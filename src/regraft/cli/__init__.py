"""The command line: a module for each command of `regraft`."""

from __future__ import annotations

import os
import sys

import click

from regraft import __version__
from regraft.cli.author import new, test_command
from regraft.cli.baseline import baseline_command
from regraft.cli.bench import bench_command
from regraft.cli.check import check
from regraft.cli.config import config_command
from regraft.cli.driver import driver_command
from regraft.cli.profile import profile_command
from regraft.cli.rules import rules_command
from regraft.cli.shared import INTERRUPTED
from regraft.cli.show import rule_command, show
from regraft.cli.split import split_command
from regraft.cli.undo import undo_command
from regraft.cli.verify import verify_command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="regraft")
def main() -> None:
    """Make PyTorch models faster by rewriting their source, and prove every rewrite by
    running it."""


for command in (
    check,
    undo_command,
    config_command,
    baseline_command,
    show,
    rule_command,
    rules_command,
    new,
    test_command,
    verify_command,
    driver_command,
    bench_command,
    profile_command,
    split_command,
):
    main.add_command(command)


def entry() -> None:
    """Run the command `regraft`, and exit with its code: 2 for a mistake of the caller and for
    output that cannot be written, INTERRUPTED after Ctrl-C."""
    try:
        code = main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        click.echo(
            "interrupted: files that were written are whole; run the command again to go on",
            err=True,
        )
        sys.exit(INTERRUPTED)
    except OSError as error:
        click.echo(f"error: cannot write the output: {error.strerror or error}", err=True)
        os._exit(2)  # the interpreter would try to flush the broken stream once more
    sys.exit(code)
