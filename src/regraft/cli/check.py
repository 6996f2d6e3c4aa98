"""The command `regraft check`: its options."""

from __future__ import annotations

import sys
from typing import Any

import click

from regraft.cli.check_options import CheckOptions
from regraft.cli.check_run import run
from regraft.cli.command_settings import CONFIG, NO_CONFIG
from regraft.cli.shared_options import (
    ALL,
    DIRECTORIES,
    DRIVER,
    IGNORE,
    KEEP,
    PASS_ENV,
    PATH,
    PATHS,
    PYTHON,
    SANDBOX,
    SELECT,
    TARGET,
    UNSAFE,
)
from regraft.configuration.settings import MOST_PROCESSES
from regraft.report.formats import FORMATS


@click.command()
@PATHS
@CONFIG
@NO_CONFIG
@click.option(
    "--exclude",
    metavar="GLOB",
    multiple=True,
    help=(
        "Also leave out files and folders that fit this pattern of .gitignore, relative to the"
        " working directory; may be given several times."
    ),
)
@click.option(
    "--force-exclude",
    is_flag=True,
    help="Leave out excluded files also where they are named (for hooks that name all files).",
)
@click.option("--no-gitignore", is_flag=True, help="Also read files that .gitignore leaves out.")
@click.option(
    "--stdin-filename",
    type=PATH,
    metavar="FILE",
    help="With the path -: the name of the file whose text standard input is.",
)
@SELECT
@IGNORE
@ALL
@TARGET
@DIRECTORIES
@click.option(
    "--lock",
    type=PATH,
    metavar="PATH",
    help="Apply the rules of this file, which regraft bench wrote.",
)
@click.option(
    "--no-lock",
    is_flag=True,
    help="Do not look for regraft.lock.toml here or beside pyproject.toml.",
)
@click.option(
    "--baseline",
    type=PATH,
    metavar="FILE",
    help="Leave out the findings of this file, which regraft baseline write made.",
)
@click.option("--no-baseline", is_flag=True, help="Report the findings of the baseline, too.")
@click.option(
    "--add-ignores",
    is_flag=True,
    help="Write a comment into the files that ignores each finding that could be fixed.",
)
@click.option(
    "--diff",
    "show_diff",
    is_flag=True,
    help="Print what would change, as a unified diff; write nothing.",
)
@click.option("--fix", is_flag=True, help="Rewrite the files.")
@click.option(
    "--out",
    type=PATH,
    metavar="DIRECTORY",
    help=(
        "With --fix: leave the files alone, and write rewritten copies here, by their place in"
        " their package."
    ),
)
@click.option(
    "--verify/--no-verify",
    "prove",
    default=None,
    help=(
        "With --fix: write only what running both versions proves, which is the default and needs"
        " torch."
    ),
)
@click.option(
    "--unproven",
    is_flag=True,
    help="With --fix: also write what is not proved, but never what is refuted.",
)
@DRIVER
@KEEP
@SANDBOX
@PASS_ENV
@PYTHON
@UNSAFE
@click.option(
    "--vendor",
    is_flag=True,
    help="With --fix: write the ops' source beside the model (regraft_ops.py).",
)
@click.option(
    "--install", is_flag=True, help="Install the packages that findings wait for, after asking."
)
@click.option(
    "--explain", is_flag=True, help="Also say where rules nearly matched, and why they did not."
)
@click.option(
    "--jobs",
    type=click.IntRange(0, MOST_PROCESSES),
    default=1,
    show_default=True,
    metavar="N",
    help="Processes; 0 for all cores.",
)
@click.option(
    "--no-cache", is_flag=True, help="Scan and verify every file, also those that were before."
)
@click.option("--statistics", is_flag=True, help="Also print the number of findings by rule.")
@click.option(
    "--quiet",
    "-q",
    is_flag=True,
    help="Print errors and warnings alone.",
)
@click.option(
    "--output-format", "form", type=click.Choice(list(FORMATS)), default="full", show_default=True
)
def check(**values: Any) -> None:
    """Find places where an optimized kernel can replace hand-written code.

    PATHS are files and folders, the current one when none is named; - reads standard input. Exits
    with 0 when there is nothing to do, 1 when there are findings, 2 when something could not be
    read.
    """
    sys.exit(run(CheckOptions(**values)))
