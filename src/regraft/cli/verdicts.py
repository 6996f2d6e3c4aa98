"""The verdicts on a changed file, for the commands that verify."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from regraft.cli.shared_options import paint, stop
from regraft.report.terminal import Progress

if TYPE_CHECKING:
    from regraft.verification import Verdict
    from regraft.verification.containment import Containment, SandboxMode
    from regraft.verification.types import Terms

_ANNOUNCED = "regraft: code under test was announced"


def containment_of(sandbox: SandboxMode, pass_env: Sequence[str]) -> Containment:
    """Return the containment that the options mean. A configuration file cannot state it: the file
    comes with the code that is contained."""
    from regraft.verification.containment import Containment

    return Containment(sandbox, tuple(pass_env))


def announce(containment: Containment, path: Path, progress: Progress | None = None) -> None:
    """Say on stderr that code of a file runs, and how it is contained; once in a command."""
    notes = click.get_current_context().meta
    if _ANNOUNCED in notes:
        return
    notes[_ANNOUNCED] = True
    if progress is None:
        click.echo(containment.notice(str(path)), err=True)
    else:
        progress.note(containment.notice(str(path)))


def hide_from_git() -> None:
    """Make git ignore what verification leaves in the working directory: counterexamples, and a
    copy of the tree that a branch started from."""
    folder = Path(".cache", "regraft")
    with contextlib.suppress(OSError):
        if folder.is_dir() and not (folder / ".gitignore").exists():
            (folder / ".gitignore").write_text("*\n", encoding="utf-8")


def verdicts_of(
    path: Path,
    changed: bytes,
    driver: str | None,
    limit: float,
    python: str,
    cached: bool,
    terms: Terms,
    containment: Containment,
    quiet: bool = False,
    shown: Path | None = None,
) -> tuple[Verdict, ...]:
    """Return the verdicts on a changed version of a file, from the cache where possible; exit on an
    error. Meanwhile stderr says which definition is run, and before, unless `quiet`, how it is
    contained. All that is said has the path `shown`, where `path` is a copy."""
    from regraft.source.cache_key import cache_directory
    from regraft.verification import VerifyError
    from regraft.verification.verdict_cache import verify_with_cache

    root = cache_directory() if cached else None
    name = str(shown or path)
    try:
        with Progress() as progress:
            progress.begin(f"running both versions of {name}")
            verdicts = verify_with_cache(
                path,
                changed,
                driver,
                limit,
                python,
                root,
                terms,
                progress.say_part,
                containment,
                None if quiet else lambda: announce(containment, Path(name), progress),
            )
    except VerifyError as error:
        stop(str(error).replace(str(path), name))
    finally:
        hide_from_git()
    return tuple(
        replace(verdict, reason=verdict.reason.replace(str(path), name)) for verdict in verdicts
    )


def print_verdicts(verdicts: Iterable[Verdict]) -> None:
    """Print each verdict with its losses and a summary of its evidence; those that say the same
    for the same reason once, with the names of their definitions."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for number, verdict in enumerate(verdicts):
        colour = {"proved": "green", "unproven": "yellow", "refuted": "red"}[verdict.status]
        status = paint(verdict.status, fg=colour, bold=True)
        result = f"{status}: {verdict.reason}" if verdict.reason else status
        occasion = "" if verdict.reason else str(number)
        key = (occasion, verdict.file, result, *_evidence_lines(verdict))
        alike.setdefault(key, []).append(verdict.definition)
    for (_, file, result, *lines), definitions in alike.items():
        click.echo(f"{file} {', '.join(definitions)}: {result}")
        for line in lines:
            click.echo(f"  {line}")


def _evidence_lines(verdict: Verdict) -> Iterator[str]:
    """Yield the losses of a verdict and a summary of its evidence, line by line."""
    from regraft.report.certificate import (
        domain_summary,
        kills_summary,
        loss_lines,
        missing_summary,
    )

    for loss in loss_lines(verdict):
        yield f"loses {loss}"
    for key in ("models", "dtypes", "reproducer"):
        value = verdict.evidence.get(key)
        if isinstance(value, list | tuple):
            value = ", ".join(map(str, value))
        if value:
            yield f"{key}: {value}"
    if verdict.evidence.get("domain"):
        yield f"domain: {domain_summary(verdict.evidence['domain'])}"
    if kills := kills_summary(verdict.evidence.get("mutants")):
        yield f"kills {kills}"
    if missing := missing_summary(verdict.evidence):
        yield f"not installed: {missing}"
