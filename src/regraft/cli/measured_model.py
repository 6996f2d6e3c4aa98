"""The subject of a measurement: the model and its calls, which a function of the user returns."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from regraft.cli.shared_options import print_error, stop
from regraft.report.terminal import is_terminal
from regraft.source.object_reference import (
    TargetError,
    check_target,
    find_function,
    place_in_target,
)

THREADS = click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    metavar="N",
    help="Of PyTorch, on CPU.",
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from regraft.source.text import SourceError


def check_subject(target: str) -> None:
    """Exit where a target names no function, as far as that shows before torch is imported, which
    takes seconds."""
    try:
        check_target(target, os.getcwd(), is_imported_here=True)
    except TargetError as problem:
        stop(f"{target}: {problem}")


def import_bench(command: str, target: str) -> Any:
    """Return the package `regraft.benchmarking` for a command; exit where its target names no
    function, and where there is no torch."""
    check_subject(target)
    if importlib.util.find_spec("torch") is None:
        stop(
            f"{command} needs torch, which is not installed in this environment: run Regraft in"
            " that of your model, or pip install 'regraft[verify]'"
        )
    # the profiler would speak whenever it starts and stops
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    return importlib.import_module("regraft.benchmarking")


def stop_for_problems(problems: Sequence[SourceError]) -> None:
    """Print the problems of rules, and exit where there are any."""
    for problem in problems:
        print_error(problem)
    if problems:
        sys.exit(2)


def load_subject(bench_module: Any, target: str, threads: int) -> tuple[Any, Any]:
    """Return the model and its calls, which the user's function returns; exit where it fails."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, inputs = call_function(target, "(model, inputs)", torch.nn.Module)
    calls = bench_module.calls_of(inputs)
    if not calls:
        stop(f"{target}: the list of inputs is empty")
    return model, calls


def prints_on_stderr(when: bool = True) -> contextlib.AbstractContextManager[object]:
    """Return a context in which what the user's code prints goes to stderr: a document on stdout
    has nothing before or between it."""
    return contextlib.redirect_stdout(sys.stderr) if when else contextlib.nullcontext()


def call_function(target: str, expected: str, kind: type = object) -> tuple[Any, Any]:
    """Return the pair that the user's function returns; exit where it raises, with the line, or
    where it returns anything else than the `expected` pair (in words for the message) that begins
    with a `kind`."""
    try:
        with prints_on_stderr():
            returned = find_function(target, os.getcwd())()
    except TargetError as problem:
        stop(f"{target}: {problem}")
    except Exception as problem:  # noqa: BLE001  whatever the user's function raises
        file, line = place_in_target(problem, target, os.getcwd())
        place = f"{file}:{line}" if line else file
        stop(f"{place}: {type(problem).__name__}: {problem}")
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[0], kind):
        stop(f"{target}: returns {type(returned).__name__}, not {expected}")
    return returned


def print_progress(text: str) -> None:
    """Print a message on stderr if that is a terminal."""
    if is_terminal(sys.stderr):
        click.echo(text, err=True)
