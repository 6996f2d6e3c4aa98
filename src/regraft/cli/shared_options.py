"""The options that several commands take, and the output that they share."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from regraft.report.counted_nouns import count
from regraft.report.formats import Streams
from regraft.report.terminal import is_terminal

if TYPE_CHECKING:
    from regraft.rules import RuleProblem
    from regraft.scanning import CompiledRule
    from regraft.source.text import SourceError


AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

INTERRUPTED = 130  # the exit code of a shell for a command that Ctrl-C ended
READER_GONE = 141  # as after the signal that a closed pipe sends other programs


class PathType(click.Path):
    """A path that is not empty: an empty one (an unset shell variable) would mean the current
    directory."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Path:
        if not os.fspath(value):
            self.fail("the path is empty", param, ctx)
        return Path(os.fsdecode(super().convert(value, param, ctx)))


PATH = PathType(path_type=Path)
PATHS = click.argument(
    "paths",
    nargs=-1,
    type=PATH,
    callback=lambda _context, _argument, paths: paths or (Path(),),
)


def join_values(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> str | None:
    """Join the values of an option by commas; return None for an option other than --ignore that is
    not given."""
    return ",".join(value) if value or parameter.name == "ignore" else None


SELECT = click.option(
    "--select",
    metavar="RULES",
    multiple=True,
    callback=join_values,
    help="Only these rules: pack, pack/rule or rule, comma-separated; may be given several times.",
)


PYTHON = click.option(
    "--python",
    default=sys.executable,
    metavar="PATH",
    help=(
        "Interpreter to run both versions in: the one that has the model's packages (default: this"
        " one)."
    ),
)


DIRECTORIES = click.option(
    "--rules",
    "directories",
    multiple=True,
    metavar="DIRECTORY",
    help="Packs of your own beside the built-in ones, which a rule of the same name replaces.",
    type=PathType(exists=True, file_okay=False, path_type=Path),
)


IGNORE = click.option(
    "--ignore",
    metavar="RULES",
    multiple=True,
    callback=join_values,
    help="Leave these rules out; may be given several times.",
)


def output_format(*forms: str) -> Callable[[AnyFunction], AnyFunction]:
    """Return the option that chooses one of these formats, of which the first is the default."""
    return click.option(
        "--output-format", "form", type=click.Choice(forms), default=forms[0], show_default=True
    )


UNSAFE = click.option(
    "--unsafe/--no-unsafe",
    default=False,
    help="Also apply rules that change what callers see (safety contract).",
)


ALL = click.option(
    "--all",
    "applies_all",
    is_flag=True,
    help="Also apply rules that gain nothing on the target, may lose there, or were not measured.",
)


TARGET = click.option(
    "--target",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Device for which rules have to pay; auto: cuda where an NVIDIA driver is installed.",
)


def _loss_words(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the words of `--keep`, each once; raise BadParameter for an unknown word."""
    if not value:
        return ()
    from regraft.verification.types import LOSSES

    words = tuple(dict.fromkeys(word for text in value for word in split_words(text)))
    for word in words:
        if word not in LOSSES:
            raise click.BadParameter(f"{word!r} is none of {', '.join(LOSSES)}", context, parameter)
    return words


DRIVER = click.option(
    "--driver", metavar="MODULE:FUNCTION", help="Function that builds the model and its calls."
)
KEEP = click.option(
    "--keep",
    metavar="script,fx,order",
    multiple=True,
    callback=_loss_words,
    help=(
        "Do not prove what loses torch.jit.script, torch.fx.symbolic_trace or the order of hooks;"
        " rewrites by rules keep the order anyway. May be given several times."
    ),
)


SANDBOX = click.option(
    "--sandbox",
    type=click.Choice(["auto", "require", "off"]),
    default="auto",
    show_default=True,
    help=(
        "Run both versions without network and with files read-only: auto: where the system allows"
        " it; require: else stop; off: never."
    ),
)
PASS_ENV = click.option(
    "--pass-env",
    metavar="NAME",
    multiple=True,
    help=(
        "Environment variable that the code under test gets besides those of Python and PyTorch;"
        " may be given several times."
    ),
)


def lock_file(explicit: Path | None, may_search: bool, rules_chosen: bool) -> Path | None:
    """Return the lock file to read: the named one, or the nearest to the working directory.

    Return None where rules are chosen or no lock file is wanted; raise UsageError where that
    contradicts --lock.
    """
    from regraft.rules.lock_file import nearest

    if explicit is not None and (rules_chosen or not may_search):
        raise click.UsageError("--lock excludes --select, --ignore, --all and --no-lock")
    return explicit or (nearest(Path.cwd()) if may_search and not rules_chosen else None)


def load_locked(
    path: Path, directories: Sequence[Path], *, unsafe: bool
) -> tuple[tuple[CompiledRule, ...], list[RuleProblem]]:
    """Return the rules of a lock file and their problems.

    The file is named on stderr, with differences from where it was measured. Without `unsafe`
    places of rules of safety contract are withheld: a rule that was measured may still change what
    callers cannot bear.
    """
    from regraft.rules.lock_file import LockError, notes
    from regraft.rules.package_requirements import installed_version
    from regraft.scanning.rule_selection import rules_of_lock

    try:
        lock, rules, problems = rules_of_lock(path, directories, "" if unsafe else "--unsafe")
    except LockError as error:
        stop(str(error))
    chosen = f"{count(len(rules), 'rule')}, {lock.goal} in {lock.mode}"
    if not lock.rules:
        chosen = "the benchmark chose no rule, so none is applied; --no-lock leaves the file out"
    click.echo(
        "; ".join(
            (
                f"{path}: {chosen}",
                *notes(lock, installed_version("torch") or ""),
            )
        ),
        err=True,
    )
    return rules, problems


def split_words(text: str) -> list[str]:
    """Return the words of a text that is separated by commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def paint(text: str, **style: object) -> str:
    """Return a text with colours, or as it is where the output is no terminal or colours are not
    wanted."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if is_plain or not is_terminal(sys.stdout):
        return text
    return click.style(text, **style)  # type: ignore[arg-type]


STREAMS = Streams(click.echo, functools.partial(click.echo, err=True), paint)


def print_error(error: SourceError) -> None:
    from regraft.report import text

    click.echo(text.error(error), err=True)


def stop(message: str) -> NoReturn:
    """Print an error and exit with status 2."""
    click.echo(f"error: {message}", err=True)
    sys.exit(2)
