"""A job of the child process, started anew after a crash without what crashed, and its result."""

from __future__ import annotations

import ast
import json
import os
import tempfile
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from regraft.verification.changed_file import write_changed
from regraft.verification.child_process import Exit, Watch, read_regular_file, run_child
from regraft.verification.containment import Containment
from regraft.verification.containment_hints import with_hint
from regraft.verification.definition_changes import Change
from regraft.verification.types import INTERNAL, TRACER, Terms, VerifyError

_RETRIES = 3
_CLOCK = 4.0  # seconds on the clock for each second of work: others use the machine, too
_FINISH = 0.9  # part of the time on the clock after which the child saves its results
_IMPORTS = ("torch", "regraft.verification.child.answer_request")
# PyTorch imports these when it first runs with symbolic sizes, for longer than a small model runs
_IMPORTS_OF_TRACING = (TRACER, "torch._functorch.aot_autograd")
_NOT_CHANGED = (
    "original",
    "mutant",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One verification: the request and the runs of the child.

    `source` is the text of the original, `before` are the changes from the changed version back to
    the original. `equal_programs` names the definitions that are the same program in both versions,
    whatever could be run of them, and `equal_if_returned` further ones that are if their decorators
    return the class that they are given.
    """

    original: Path
    changed: bytes
    changes: tuple[Change, ...]
    before: tuple[Change, ...]
    driver: str | None
    time_limit: float
    memory_limit: int | None
    python: str
    terms: Terms
    source: bytes = b""
    equal_programs: frozenset[str] = frozenset()
    equal_if_returned: frozenset[str] = frozenset()
    watch: Watch | None = None
    containment: Containment = field(default_factory=Containment)

    @property
    def only_confirms(self) -> bool:
        """Whether every changed definition was proved before."""
        return {change.definition for change in self.changes} <= set(self.terms.confirmed)

    def _imports(self) -> tuple[str, ...]:
        """Return the modules that the launcher imports before it forks the child, with those of
        tracing unless the run is brief."""
        is_brief = self.terms.effort == "low" or self.only_confirms
        return _IMPORTS if is_brief else (*_IMPORTS, *_IMPORTS_OF_TRACING)

    def run(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Run children until one finishes; return its result, and the reason by definition for each
        definition that ended a child.

        A definition that ended a child is excluded from the next one, and a step of the original
        that crashed it is avoided. No further child starts where neither is to blame, after
        `_RETRIES` of them, or after the time limit. Raises VerifyError for an interpreter without
        torch, and for a driver that cannot be loaded or fails with the original.
        """
        deadline = time.monotonic() + _CLOCK * self.time_limit
        fatal_definitions: dict[str, str] = {}
        avoided_steps: list[str] = []
        while True:
            remaining_seconds = max(1.0, deadline - time.monotonic())
            child_exit, result = self._run_child(
                remaining_seconds, tuple(fatal_definitions), avoided_steps
            )
            if child_exit.how == "finished":
                break
            blamed = self._blame(child_exit, result)
            fatal_definitions.update(blamed)
            result = _add_end(result, child_exit, bool(blamed))
            crashed_steps = _steps_to_avoid(child_exit, avoided_steps)
            avoided_steps += crashed_steps
            is_late = time.monotonic() > deadline - 1
            has_blamed_all = len(fatal_definitions) >= len(self.changes)
            runs = len(fatal_definitions) + len(avoided_steps)
            if not (blamed or crashed_steps) or is_late or has_blamed_all or runs > _RETRIES:
                break
        self._check_request_was_possible(result)
        return result, fatal_definitions

    def _run_child(
        self, seconds: float, excluded: tuple[str, ...], avoided_steps: list[str]
    ) -> tuple[Exit, dict[str, Any]]:
        """Run one child for at most `seconds` on the clock; return how it ended, and its result."""
        with tempfile.TemporaryDirectory(prefix="regraft-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            self._write_request(folder, seconds, excluded, avoided_steps)
            child_exit = run_child(
                self.python,
                folder,
                seconds,
                self.memory_limit,
                self._imports(),
                self.watch,
                self.containment,
            )
            return child_exit, read_result(folder)

    def _check_request_was_possible(self, result: dict[str, Any]) -> None:
        """Raise VerifyError where the child had no torch or no NumPy, or the driver cannot be
        loaded or fails with the original."""
        check_packages(result, self.python)
        fatal = result.get("fatal", {})
        if fatal.get("what") == "driver":
            reason = with_hint(fatal["reason"], self.containment, self.memory_limit)
            file, line = fatal.get("file") or str(self.driver), fatal.get("line", 0)
            raise VerifyError(reason, file=file, line=line)

    def _are_all_equal(self) -> bool:
        """Return whether every change is the same program in both versions, if decorators return
        the class that they are given."""
        equal = self.equal_programs | self.equal_if_returned
        return all(change.definition in equal for change in self.changes)

    def _write_request(
        self, folder: Path, seconds: float, excluded: tuple[str, ...], avoided_steps: list[str]
    ) -> None:
        """Write the request of one child, and the changed version, below `folder`; `seconds` are on
        the clock."""
        source = write_changed(self.changed, self.original, folder)
        request = {
            "original": str(self.original),
            "changed": str(source),
            "changes": [asdict(change) for change in self.changes],
            "before": [asdict(change) for change in self.before],
            "driver": self.driver,
            "folder": os.getcwd(),
            "seconds": seconds / _CLOCK,
            "clock": seconds * _FINISH,
            "excluded": list(excluded),
            "avoided": avoided_steps,
            "effort": self.terms.effort,
            "contract": self.terms.contract,
            "by rules": self.terms.by_rules,
            "model classes": list(self.terms.model_classes),
            "same": self.terms.effort != "high" and self._are_all_equal(),
            "same if returned": sorted(self.equal_if_returned),
            "confirms": self.only_confirms,
            "text": _changed_source(self.changed, self.changes),
        }
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")

    def _blame(self, child_exit: Exit, result: dict[str, Any]) -> dict[str, str]:
        """Return the definitions that caused a child's end, with the reason: the one that its last
        step names, else all that are not refuted. There are none unless the child ended in a step
        of the changed version that the original survived."""
        step = child_exit.step
        # what all processes use together is not the fault of the last step
        is_shared = child_exit.how in ("time limit", "limit") or child_exit.code == INTERNAL
        if is_shared or step.get("side") != "changed":
            return {}
        reason = (
            f"the changed version fails where the original works: {child_exit.cause}, at"
            f" {step['what']!r}"
        )
        if step.get("definition") in {change.definition for change in self.changes}:
            return {str(step["definition"]): reason}
        records = result.get("records", {})
        refuted = {name for name, record in records.items() if record["refuted"]}
        return {
            change.definition: reason for change in self.changes if change.definition not in refuted
        }


def _steps_to_avoid(child_exit: Exit, avoided_steps: Collection[str]) -> list[str]:
    """Return the step in which a child ended, in a list, where the next child may get further
    without it: the changed version is not to blame, and the step was not to be avoided already. []
    where it cannot."""
    step = child_exit.step
    is_its_end = child_exit.how in ("crashed", "limit", "hang")
    if is_its_end and step.get("side") in _NOT_CHANGED and step["what"] not in avoided_steps:
        return [step["what"]]
    return []


def name_of_step(step: Mapping[str, Any]) -> str:
    """Return the definition that a step of the child runs, else what it does; "" between steps."""
    return str(step.get("definition") or (step.get("what", "") if step.get("side") else ""))


def _changed_source(changed: bytes, changes: tuple[Change, ...]) -> str:
    """Return the source of the changed definitions at the top level, unparsed: without comments."""
    names = {change.definition.partition("#")[0] for change in changes}
    nodes = [node for node in ast.parse(changed).body if getattr(node, "name", None) in names]
    return "\n\n".join(ast.unparse(node) for node in nodes)


def read_result(folder: Path) -> dict[str, Any]:
    """Return the result that a child saved, empty where it saved none."""
    try:
        result = json.loads(read_regular_file(folder / "result.json"))
    except (ValueError, RecursionError):  # also what code under test wrote in its place
        return {}
    return result if isinstance(result, dict) else {}


def check_packages(result: Mapping[str, Any], python: str) -> None:
    """Raise VerifyError where a child of an interpreter had no torch or no NumPy."""
    fatal = result.get("fatal", {})
    if fatal.get("what") == "package":
        names = fatal["names"]
        reason = f"verification needs {' and '.join(names)}: pip install {' '.join(names)}"
        raise VerifyError(reason, file=python)


def _add_end(result: dict[str, Any], child_exit: Exit, is_blamed: bool) -> dict[str, Any]:
    """Add the cause of a child's end to its result, in place, with the last line of its error
    output where no definition is to blame; return the result."""
    place = f", at {child_exit.step['what']!r}" if child_exit.step.get("what") else ""
    result["ended"] = f"the run did not finish: {child_exit.cause}{place}"
    if not is_blamed:
        result["ended"] += child_exit.last_line
    return result
