"""The protocol of the artefacts that a split leaves, and of their emitters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from regraft.splitting.checking.original_network import CheckResult, Original
from regraft.splitting.compiling.compiled_network import CompiledNetwork
from regraft.splitting.emitting.single import SingleFile
from regraft.splitting.emitting.split_directory import SplitModel
from regraft.splitting.emitting.split_report import Report
from regraft.splitting.preconditions import StateGuard

SplitNetwork = SplitModel | SingleFile


class Artefact(Protocol):
    """A split network in its files, which can be called before its report is complete.

    report: what is known about the artefact before its check.
    """

    report: Report

    @property
    def network(self) -> SplitNetwork:
        """Return the network as it can be called before `finish`."""

    def check(self, original: Original, earlier: CheckResult) -> CheckResult:
        """Compare results with the original's, and return what was compared, with the numbers of
        the inputs whose results are equal.

        earlier: the result for the host, whose inputs are compared again. Raises Unsplittable where
        results differ.
        """

    def finish(self, report: Report) -> SplitNetwork:
        """Write the complete report to the artefact's files, and return the network that the user
        can call."""


@dataclass(frozen=True)
class Emitter:
    """A kind of artefact.

    emit: writes the artefact of a program whose host was checked; raises Unsplittable for what the
    artefact cannot express. measured: whether a sub-network that is slower when compiled is run by
    torch. partial: whether the artefact raises as Python does where a variable has no value; other
    artefacts need a value on every path. entry: the artefact's file in the directory of a split; ""
    for the directory itself.
    """

    emit: Callable[[CompiledNetwork, Report, StateGuard], Artefact]
    measured: bool
    partial: bool
    entry: str
