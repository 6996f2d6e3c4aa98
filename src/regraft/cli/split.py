"""The command `regraft split`."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import click

from regraft.cli.measured_model import call_function, check_subject, prints_on_stderr
from regraft.cli.shared_options import output_format, stop
from regraft.report.split_text import split_text, summary_text
from regraft.report.terminal import Progress
from regraft.source.object_reference import place_of_function

# by the names of the files: importing the package would load torch
_COMPILERS = Path(__file__).parent.parent / "splitting" / "compiling" / "compilers"
_COMPILER_FILES = _COMPILERS.glob("with_*.py")


def parse_dynamic(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, dict[int, tuple[int, int]]]:
    """Return the ranges of sizes by argument and dimension; raise BadParameter for a text that is
    no range, and for a dimension that is given twice."""
    dynamic: dict[str, dict[int, tuple[int, int]]] = {}
    for text in texts:
        match = re.fullmatch(r"(\w+):(-?\d+)=(\d+)\.\.(\d+)", text)
        if match is None:
            raise click.BadParameter(f"{text} is no range of sizes; give one as x:0=1..512")
        key, dim, low, high = match.groups()
        ranges = dynamic.setdefault(key, {})
        if int(dim) in ranges:
            raise click.BadParameter(f"the sizes of {key}:{dim} are given twice")
        ranges[int(dim)] = int(low), int(high)
    return dynamic


@click.command("split")
@click.argument("target", metavar="TARGET")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Directory or file to write; required but for --replay.",
)
@click.option(
    "--single-file",
    is_flag=True,
    help="Write one ONNX file, with If and Loop in the place of the host.",
)
@click.option(
    "--batched", is_flag=True, help="Take any number of samples, each of which goes its own way."
)
@click.option(
    "--compiler",
    type=click.Choice(
        ["auto", *sorted(path.stem.removeprefix("with_") for path in _COMPILER_FILES)]
    ),
    default="onnxruntime",
    show_default=True,
    help="What runs the sub-networks; auto is the fastest one of those that are installed.",
)
@output_format("text", "full", "json", "html")
@click.option(
    "--unseen",
    type=click.Choice(["refuse", "raise"]),
    default="refuse",
    show_default=True,
    help=(
        "What becomes of a side of a decision that no checked input takes: no split, or an error"
        " where it is taken."
    ),
)
@click.option(
    "--no-measure",
    is_flag=True,
    help="Compile also what is slower than eager torch on this machine.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Threads of one operation, for ONNX Runtime and OpenVINO (default: 1).",
)
@click.option(
    "--providers",
    metavar="NAMES",
    help=(
        "Execution providers of ONNX Runtime, comma-separated, in the order in which they are"
        " asked (default: CPUExecutionProvider)."
    ),
)
@click.option(
    "--dynamic",
    metavar="ARGUMENT:DIMENSION=LOW..HIGH",
    multiple=True,
    callback=parse_dynamic,
    help=(
        "Sizes that a dimension of an argument may have, such as x:0=1..512, in the place of"
        " example calls of several sizes; may be given several times."
    ),
)
@click.option(
    "--replay",
    metavar="FOLDER",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Run the inputs again on which an earlier split differed from the original.",
)
@click.option(
    "--no-cache", is_flag=True, help="Build the network again, also where it was split before."
)
def split_command(**values: Any) -> None:
    """Split a network into compiled sub-networks and a host.

    TARGET is MODULE:FUNCTION or FILE.py:FUNCTION, a function that returns (model, calls).

    Exit codes: 0 written, 1 the network cannot be split, 2 error; with --replay 0 for equal
    results, 1 for different ones.
    """
    _run(SplitOptions(**values))


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """The options of `regraft split`, as its `--help` explains them."""

    target: str
    output: Path | None
    single_file: bool
    batched: bool
    compiler: str
    form: str
    unseen: str
    no_measure: bool
    threads: int | None
    providers: str | None
    dynamic: dict[str, dict[int, tuple[int, int]]]
    replay: Path | None
    no_cache: bool


def _run(options: SplitOptions) -> None:
    """Split the network, write it and print the report; exit where it cannot be split."""
    target, output = options.target, options.output
    if output is None and options.replay is None:
        raise click.UsageError("Missing option '-o' / '--output'.")
    if output is not None:
        _check_output(output, options.single_file)
    check_subject(target)
    try:
        splitting = importlib.import_module("regraft.splitting")
    except ImportError as problem:
        stop(
            f"split needs the package {problem.name}, which cannot be imported here ({problem}):"
            " pip install 'regraft[split]'"
        )
    model, calls = call_function(target, "(model, calls)")
    _check_calls(target, calls)
    if output is None or options.replay is not None:
        run_again(model, calls, options.replay)
    try:
        with prints_on_stderr():
            result = _split(splitting, options, model, calls)
    except splitting.Unsplittable as problem:
        click.echo(str(problem), err=True)
        sys.exit(1)
    except (ValueError, ImportError) as problem:
        stop(str(problem))
    result.save(output)
    print_report(target, str(output), options.form, result)


def _check_calls(target: str, calls: Any) -> None:
    """Exit where what the user's function returns as calls is no list of tuples or dicts."""
    preconditions = importlib.import_module("regraft.splitting.preconditions")
    reason = preconditions.describe_malformed(calls)
    if reason:
        place = place_of_function(target, os.getcwd())
        stop(f"{place}: {reason}; return (model, calls) with calls such as [(x,)] or [{{'x': x}}]")


def _split(splitting: Any, options: SplitOptions, model: Any, calls: Any) -> Any:
    """Return the split network of a model, and say meanwhile on stderr what is done."""
    with Progress() as progress:
        progress.begin(f"splitting {options.target}")
        return splitting.split(
            model,
            calls,
            compiler=options.compiler,
            unseen=options.unseen,
            cache=not options.no_cache,
            single_file=options.single_file,
            batched=options.batched,
            measure=not options.no_measure,
            watch=progress.say_part,
            threads=options.threads,
            providers=None if options.providers is None else options.providers.split(","),
            dynamic=options.dynamic,
        )


def _check_output(output: Path, single_file: bool) -> None:
    """Exit where the network cannot be written to `output`: a file where it becomes a folder, a
    folder where it becomes a file, a file in a folder that is not there, or a folder with files
    that are not of a split network."""
    if single_file:
        if output.is_dir():
            stop(f"{output} is a folder; --single-file writes a file: name one, such as net.onnx")
        if not output.parent.is_dir():
            stop(f"{output}: there is no folder {output.parent}: make it, or name another file")
        return
    if output.is_file():
        stop(f"{output} is a file; a network is written as a folder, with --single-file as a file")
    if output.suffix == ".onnx":
        stop(
            f"{output} names a file; a network is written as a folder: add --single-file, or -o DIR"
        )
    if output.is_dir() and any(output.iterdir()) and not (output / "manifest.json").is_file():
        stop(
            f"{output} has other files: name a new folder, an empty one, or that of a split network"
        )


def run_again(model: Any, calls: Any, folder: Path | None) -> NoReturn:
    """Run the inputs of a folder again, say whether the results differ, and end the process with 0
    where they do not, 1 where they do, and 2 where they cannot be run."""
    replaying = importlib.import_module("regraft.splitting.replay")
    try:
        mismatch = replaying.replay(model, calls, folder)
    except Exception as problem:  # noqa: BLE001  whatever damaged files and the model raise
        stop(f"{folder}: {type(problem).__name__}: {problem}")
    click.echo(mismatch or "the results are equal")
    sys.exit(1 if mismatch else 0)


def print_report(target: str, output: str, form: str, result: Any) -> None:
    """Print the report of a split network that was written to `output`, in one of the formats."""
    report = dataclasses.asdict(result.report)
    if form == "json":
        click.echo(json.dumps({"version": 1, **report}))
    elif form == "html":
        from regraft.report.html.split_page import split_page

        manifest = json.loads((result.directory / "manifest.json").read_text("utf-8"))
        sources = (os.getcwd(), *sys.path)
        click.echo(split_page(target, output, manifest["compiler"], sources, report))
    else:
        text = split_text(report) if form == "full" else summary_text(report)
        click.echo(f"{output}: {text}")
