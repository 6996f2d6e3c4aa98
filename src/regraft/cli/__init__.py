"""The command line: a module for each command of `regraft`."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import click

from regraft import __version__
from regraft.cli.shared_options import INTERRUPTED, READER_GONE

_COMMANDS = {  # the module and the function of each
    "baseline": "baseline.baseline_command",
    "bench": "bench.bench_command",
    "check": "check.check",
    "config": "config.config_command",
    "driver": "driver.driver_command",
    "mcp": "servers.mcp_command",
    "new": "new_and_test.new",
    "profile": "profile.profile_command",
    "rule": "show.rule_command",
    "rules": "rules.rules_command",
    "server": "servers.server_command",
    "show": "show.show",
    "split": "split.split_command",
    "test": "new_and_test.test_command",
    "undo": "undo.undo_command",
    "verify": "verify.verify_command",
}


class _ReaderGone(Exception):
    """The end of a pipe whose reader has closed it."""


class _Commands(click.Group):
    """The commands, of which only those are imported that are run or explained."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _COMMANDS:
            return _import_command(cmd_name)
        self.commands = {name: _import_command(name) for name in _COMMANDS}  # to suggest one
        return None

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Read the arguments, which prints the version and the help; raise _ReaderGone as `invoke`
        does."""
        with _notice_reader():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; raise _ReaderGone where click would exit with 1, which means findings."""
        with _notice_reader():
            return super().invoke(ctx)


@contextlib.contextmanager
def _notice_reader() -> Iterator[None]:
    """Raise _ReaderGone where the body writes to a pipe that is closed."""
    try:
        yield
    except BrokenPipeError as error:
        raise _ReaderGone from error


def _import_command(name: str) -> click.Command:
    module, _, function = _COMMANDS[name].partition(".")
    command: click.Command = getattr(importlib.import_module(f"{__name__}.{module}"), function)
    return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="regraft")
def main() -> None:
    """Make PyTorch models faster by rewriting their source, and prove every rewrite by
    running it."""


def entry() -> None:
    """Run the command `regraft`, and exit with its code: 2 for a mistake of the caller and for
    output that cannot be written, INTERRUPTED after Ctrl-C, READER_GONE for a closed pipe."""
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
    except _ReaderGone:
        os._exit(READER_GONE)  # the interpreter would try to flush the broken stream once more
    except OSError as error:
        place = error.filename or "cannot write the output"
        click.echo(f"error: {place}: {error.strerror or error}", err=True)
        os._exit(2)
    sys.exit(code)
