"""The command `regraft driver`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from regraft.cli.shared_options import PASS_ENV, PATH, PYTHON, SANDBOX, stop
from regraft.cli.verdicts import announce, containment_of
from regraft.report.counted_nouns import count
from regraft.source.similar_names import suggest_path

if TYPE_CHECKING:
    from regraft.verification.containment import SandboxMode
    from regraft.verification.driver_writing import DriverFile


@click.command("driver")
@click.argument("file", type=PATH)
@click.option(
    "--class",
    "class_name",
    default="",
    metavar="NAME",
    help="The class to build (default: the one that contains most classes of the file).",
)
@click.option(
    "--out",
    type=PATH,
    metavar="PATH",
    help="The file to write (default: FILE's name with _driver, in the current folder).",
)
@PYTHON
@SANDBOX
@PASS_ENV
def driver_command(
    file: Path,
    class_name: str,
    out: Path | None,
    python: str,
    sandbox: SandboxMode,
    pass_env: tuple[str, ...],
) -> None:
    """Write a driver for FILE: a function that builds one of its models, and calls of the model.

    What Regraft guessed is filled in, what it could not guess is marked with TODO. Exits with 0
    when the driver is written, 2 when FILE does not import or the driver's file exists already.
    """
    from regraft.verification.driver_writing import driver_for
    from regraft.verification.types import VerifyError

    if not file.is_file():
        missing = f"{file}: no such file{suggest_path(file)}"
        stop(f"{file} is a folder: name a file" if file.is_dir() else missing)
    target = out or Path(f"{file.stem}_driver.py")
    if target.exists():
        stop(
            f"{target} exists already; nothing is written: remove it, or name another file (--out)"
        )
    containment = containment_of(sandbox, pass_env)
    try:
        driver = driver_for(
            file,
            target,
            class_name,
            python=python,
            containment=containment,
            on_start=lambda: announce(containment, file),
        )
    except VerifyError as error:
        stop(str(error))
    _write(target, file, driver)


def _write(target: Path, file: Path, driver: DriverFile) -> None:
    """Write the driver of a file, and say what is to be done with it; exit where it cannot be
    written."""
    try:
        target.write_text(driver.text, encoding="utf-8")
    except OSError as error:
        stop(f"{target} cannot be written: {error.strerror or error}")
    click.echo(f"wrote {target}: builds {driver.class_name}")
    for gap in driver.gaps:
        click.echo(f"  fill in: {gap}")
    gaps = f" after filling in {count(len(driver.gaps), 'gap')}" if driver.gaps else ""
    reference = f"--driver {target}:build {file}"
    click.echo(
        f"next{gaps}: regraft check --fix {reference}, or regraft verify {reference} CHANGED"
    )
