"""Types and constants of verification: its terms, its verdicts and the error for mistakes of the
caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

Status = Literal["proved", "unproven", "refuted"]

Effort = Literal["low", "default", "high"]
Contract = Literal["strict", "results"]

# Values of `--keep`: transforms of PyTorch that the original supports, and the order in which hooks
# run.
TRANSFORMS: Mapping[str, str] = MappingProxyType(
    {"script": "torch.jit.script", "fx": "torch.fx.symbolic_trace"}
)
ORDER = "order of hooks"
LOSSES: Mapping[str, str] = MappingProxyType({**TRANSFORMS, "order": ORDER})
_OF_RULES = ("order",)  # kinds of losses that a rewrite by rules must not have

LEVELS = ("parses", "imports", "builds", "state_dict", "outputs", "gradients", "lines executed")
MODULE = "<module>"
REFUSED = 71  # exit status of a child that the system gives no namespaces
TRACER = "torch._dynamo"  # the module that a child which traces has the launcher import
INTERNAL = 70  # exit status of a child that failed itself: says nothing about either version


@dataclass(frozen=True, slots=True)
class Terms:
    """The requirements of a proof.

    `effort` says how much is compared, `contract` whether everything that a caller can observe
    counts, and `keep` names the properties that a changed definition must not lose (keys of
    LOSSES). `by_rules`: only rules made the change that are tested to compute the same for all
    values; an edit by anyone may do anything. `model_classes`: the names of the classes of the file
    that a living model has, to which alone the change applies; empty for a change of the file. What
    other classes do with a changed class, and other values of its options, do not matter then.
    `confirmed`: the names of changed definitions that were proved, with the same text, beside
    changes that are gone now; where these are all changed definitions, each is compared once more,
    briefly.
    """

    effort: Effort = "default"
    contract: Contract = "strict"
    keep: tuple[str, ...] = ()
    by_rules: bool = False
    model_classes: tuple[str, ...] = ()
    confirmed: tuple[str, ...] = ()

    def for_rules(self, *, tested: bool) -> Terms:
        """Return these terms for a rewrite by rules, which must keep the order of hooks, too;
        `tested` becomes `by_rules`."""
        return replace(self, keep=(*self.keep, *_OF_RULES), by_rules=tested)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of running both versions, for one changed top-level definition.

    `lines` are 1-based lines of the changed file; `reason` is empty exactly when `status` is
    "proved".
    """

    file: str
    definition: str
    lines: tuple[int, ...]
    status: Status
    reason: str
    evidence: Mapping[str, object]

    @property
    def is_cut_short(self) -> bool:
        """Return whether the reason says that the run ended before everything was compared, at its
        time limit, for example."""
        return "time limit" in self.reason or "did not finish" in self.reason

    @property
    def lacks_import(self) -> bool:
        """Return whether the reason says that a version, or a module that it needs, could not be
        imported, which another environment may mend."""
        return "does not import: " in self.reason or "No module named" in self.reason


class VerifyError(Exception):
    """A mistake of the caller, with its file, line and column; never a property of the rewrite."""

    def __init__(self, message: str, file: str = "", line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.line = line
        self.column = column

    def __str__(self) -> str:
        """Return "FILE:LINE:COLUMN: MESSAGE" as far as the place is known."""
        location = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        return f"{location}: {self.message}" if location else self.message
