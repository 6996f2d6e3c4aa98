"""`regraft` as a user calls it, and what it answers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from regraft.cli import main

# a module that Regraft cannot bring to life without a driver
STRANGE = """
from torch import nn


class Strange(nn.Module):
    def __init__(self, *, unguessable_thing):
        super().__init__()
        self.norm = nn.LayerNorm(unguessable_thing.dim)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.norm(self.drop(x) + x)
"""


def regraft(
    *arguments: object, cwd: Path | None = None, text: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command line in this process, in the folder `cwd`, with a text on standard input, and
    return its exit status and what it printed; an exception that it does not turn into a message is
    raised.

    A process of its own takes seconds to read all rules, and to start the verifier's launcher.
    """
    command, before = [*map(str, arguments)], os.getcwd()
    os.chdir(cwd or before)
    try:
        result = CliRunner().invoke(main, command, input=text, catch_exceptions=False)
    finally:
        os.chdir(before)
    return subprocess.CompletedProcess(command, result.exit_code, result.stdout, result.stderr)


def regraft_process(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    command = [sys.executable, "-m", "regraft", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
