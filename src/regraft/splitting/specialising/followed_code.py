"""The functions and loops that a specialisation follows."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from regraft.splitting.program.residual import Step
from regraft.splitting.program.values import Names

Location = tuple[str, int]  # a file and a line


class Frame:
    """A function being specialised.

    path: its source file. scope: its globals and the variables that it closes over, by name.
    prefix: what its local names begin with in `Specialisation.names`, such as `f2_`; "" for
    `forward` itself.
    """

    def __init__(self, path: str, scope: dict[str, Any], prefix: str) -> None:
        self.path, self.scope, self.prefix = path, scope, prefix
        self.own_names: set[str] = set()  # the function's own names
        self.nonlocal_names: set[str] = set()  # names of the functions around that it assigns
        self.first_parameter = ""  # its first parameter
        self.outer: Frame | None = None  # for a local function: the one that made it
        self.line = 0  # of the statement that is specialised
        self.may_repeat = (
            False  # a loop may run its statements again, where its names keep their values
        )


class NotRun(BaseException):
    """Signals that a local function was run instead of followed. It is a BaseException, so that an
    `except Exception` in the code that is run lets it pass."""


@dataclass(frozen=True)
class LocalFunction:
    """A local function: its statements, and the call that made it, whose names it sees as they are
    when it runs."""

    definition: ast.FunctionDef
    frame: Frame


@dataclass
class FollowedLoop:
    """A loop that is being followed, with the steps and names of the paths out of it.

    unrolled: whether its iterations are followed one by one. exits: the paths that leave the loop
    early. continues: the paths that leave an iteration early.
    """

    unrolled: bool
    exits: list[tuple[list[Step], Names]] = field(default_factory=list)
    continues: list[tuple[list[Step], Names]] = field(default_factory=list)
