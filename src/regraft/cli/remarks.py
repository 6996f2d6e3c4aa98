"""The sentences of `regraft check` about a run as a whole."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from regraft.report.counted_nouns import count

if TYPE_CHECKING:
    from regraft.report.json_report import Collector


def remarks_on(total: Collector, has_statistics: bool) -> Iterator[str]:
    """Yield the sentences about a run, and the number of findings of each rule where wanted."""
    yield from _install_remarks(total)
    yield from _verdict_remarks(total)
    yield from _omission_remarks(total)
    if has_statistics:
        yield from (f"{number:6}  {rule}" for rule, number in total.statistics())


def _install_remarks(total: Collector) -> Iterator[str]:
    """Yield, for each package that findings wait for, the command that installs it."""
    for requirement, number in sorted(total.missing.items()):
        waiting = "1 finding waits" if number == 1 else f"{number} findings wait"
        yield f"{waiting} for {requirement}: {_shown(_install_command([requirement]))}"


def _verdict_remarks(total: Collector) -> Iterator[str]:
    """Yield the numbers of definitions by verdict, where any was verified, and of files that were
    passed over."""
    if total.verdicts:
        numbers = Counter(verdict.status for verdict in total.verdicts)
        counts = (f"{numbers[word]} {word}" for word in ("proved", "unproven", "refuted"))
        yield f"definitions: {', '.join(counts)}"
    if total.passed_over:
        files = count(total.passed_over, "file")
        yield f"{files} of tests, examples and vendored code not rewritten: name them to do so"


def _omission_remarks(total: Collector) -> Iterator[str]:
    """Yield the numbers of what is not among the findings, or will not be."""
    if not (total.files or total.notebooks or total.errors):
        yield "no Python file there: folders are searched for .py files that nothing leaves out"
    for target, number in sorted(total.gainless.items()):
        if number == 1:
            yield f"1 place that gains nothing on {target}: --all applies it"
        else:
            yield f"{number} places that gain nothing on {target}: --all applies them"
    if total.ignored:
        yield f"{count(total.ignored, 'finding')} ignored by comments"
    if total.accepted:
        yield f"{count(total.accepted, 'finding')} accepted by the baseline"
    if total.ignores_added:
        yield f"{count(total.ignores_added, 'finding')} ignored by new comments"
    if total.notebooks:
        yield f"{count(total.notebooks, 'notebook')} not read: Regraft reads .py files"


def _install_command(requirements: list[str]) -> list[str]:
    """Return the command that installs packages into this environment."""
    return [sys.executable, "-m", "pip", "install", *requirements]


def _shown(command: list[str]) -> str:
    """Return a command as it is written in a shell."""
    import shlex

    return shlex.join(command)


def offer_install(requirements: list[str]) -> bool:
    """Install packages into this environment if the user agrees; return False where the installer
    fails."""
    command = _install_command(requirements)
    if not click.confirm(f"Run {_shown(command)}?", err=True):
        return True
    import subprocess

    return subprocess.run(command, check=False).returncode == 0
