"""The command `regraft profile`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from regraft.cli.command_settings import (
    CONFIG,
    NO_CONFIG,
    SubjectOptions,
    load_chosen,
)
from regraft.cli.measured_model import (
    THREADS,
    import_bench,
    load_subject,
    print_progress,
    prints_on_stderr,
    stop_for_problems,
)
from regraft.cli.shared_options import DIRECTORIES, IGNORE, join_values, output_format, paint, stop

if TYPE_CHECKING:
    from regraft.configuration.settings import TargetName
    from regraft.scanning import CompiledRule


@click.command("profile")
@click.argument("subject", metavar="TARGET")
@CONFIG
@NO_CONFIG
@click.option(
    "--packs",
    metavar="RULES",
    multiple=True,
    callback=join_values,
    help=(
        "Rules to look for: pack, pack/rule or rule, comma-separated; those that the configuration"
        " file selects if not given, else those that need only PyTorch."
    ),
)
@IGNORE
@DIRECTORIES
@click.option(
    "--mode",
    type=click.Choice(["inference", "training"]),
    default="inference",
    show_default=True,
)
@THREADS
@click.option(
    "--unsafe/--no-unsafe",
    default=False,
    help="Also count rules that change what callers see (safety contract).",
)
@click.option(
    "--all",
    "applies_all",
    is_flag=True,
    help="Also count rules that may lose on the target, as --packs does, with what they may lose.",
)
@click.option(
    "--target",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Device for which rules have to pay; auto: the model's.",
)
@output_format("text", "json")
def profile_command(**values: Any) -> None:
    """Profile a step of a model: the time and memory of its definitions, and what the rules that
    have findings there are expected to gain. It takes some steps, and proves nothing.

    TARGET is MODULE:FUNCTION or FILE.py:FUNCTION, a function without arguments that returns (model,
    inputs), as for `regraft bench`.

    Exit codes: 0 profiled, 2 error.
    """
    _run(ProfileOptions(**values))


@dataclass(frozen=True, slots=True)
class ProfileOptions(SubjectOptions):
    """The options of `regraft profile`, as its `--help` explains them."""

    applies_all: bool
    target: TargetName


def _run(options: ProfileOptions) -> None:
    """Profile, and print the result; exit where the model cannot be profiled."""
    bench_module = import_bench("profile", options.subject)
    settings = options.settings(options.target)
    rules, problems = load_chosen(settings)
    stop_for_problems(problems)
    model, calls = load_subject(bench_module, options.subject, options.threads)
    is_explicit = settings.select is not None or options.applies_all
    judged = _judge(rules, model, settings.target, is_explicit=is_explicit)
    try:
        with prints_on_stderr():
            result = bench_module.profile_model(
                model, calls, judged, options.mode, print_progress, settings
            )
    except bench_module.BenchError as problem:
        stop(f"{options.subject}: {problem}")
    if options.form == "json":
        document = bench_module.profile_as_json(result, options.subject)
        click.echo(json.dumps(document, indent=1))
        return
    command = _next_command(options, result.candidates)
    click.echo("\n".join(bench_module.profile_as_text(result, command, paint)))


def _judge(
    rules: Sequence[CompiledRule], model: Any, target: str, *, is_explicit: bool
) -> tuple[CompiledRule, ...]:
    """Return the rules with their worth on the target, which is the model's device where the user
    names none; those that do not pay there are withheld unless the user asked for them."""
    from regraft.rules.worth import chosen_target
    from regraft.scanning import with_worth

    device = next((parameter.device.type for parameter in model.parameters()), "cpu")
    name = ("cuda" if device == "cuda" else "cpu") if target == "auto" else target
    return with_worth(rules, chosen_target(name), "" if is_explicit else "--all or --packs")


def _configuration_words(options: ProfileOptions) -> list[str]:
    """Return the options by which another command reads the same configuration file."""
    if options.config is not None:
        return ["--config", str(options.config)]
    return ["--no-config"] if options.no_config else []


def _next_command(options: ProfileOptions, candidates: Sequence[str]) -> str:
    """Return the command that measures the candidates on the same step."""
    words = ["regraft", "bench", options.subject, "--packs", ",".join(candidates)]
    words += ["--mode", options.mode] if options.mode != "inference" else []
    words += ["--threads", str(options.threads)] if options.threads != 1 else []
    words += ["--unsafe"] if options.unsafe else []
    words += _configuration_words(options)
    words += [word for path in options.directories for word in ("--rules", str(path))]
    return shlex.join(words)
