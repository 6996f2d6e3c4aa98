"""`verify` and the rest of verification in the parent process, which never imports torch: compare
texts, run the child and turn the child's findings into verdicts."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from regraft.verification.changed_file import write_changed
from regraft.verification.child_process import Exit, Watch, read_regular_file, run_child
from regraft.verification.containment import Containment
from regraft.verification.containment_hints import kept_back_names, with_hint
from regraft.verification.definition_changes import Change, find_changes
from regraft.verification.equal_programs import equal_definitions
from regraft.verification.missing_evidence import evidence_of, missing_comparison, missing_evidence
from regraft.verification.readable_files import readable_paths
from regraft.verification.reproducer_script import write_reproducer
from regraft.verification.torchscript_and_fx_uses import transforms_applied_to
from regraft.verification.types import (
    INTERNAL,
    LOSSES,
    Contract,
    Effort,
    Status,
    Terms,
    Verdict,
    VerifyError,
)

_RETRIES = 3
_CLOCK = 4.0  # seconds on the clock for each second of work: others use the machine, too
_FINISH = 0.9  # part of the time on the clock after which the child saves its results
_IMPORTS = ("torch", "regraft.verification.child.answer_request")
# PyTorch imports these when it first runs with symbolic sizes, for longer than a small model runs
_IMPORTS_OF_TRACING = ("torch._dynamo", "torch._functorch.aot_autograd")
# sides of a run whose crash says nothing about the changed version
_NOT_CHANGED = (
    "original",
    "mutant",
)
MEMORY_LIMIT = 8 * 1024**3


def verify(
    original: Path,
    changed: bytes,
    *,
    driver: str | None = None,
    time_limit: float = 300.0,
    memory_limit: int | None = MEMORY_LIMIT,
    python: str = sys.executable,
    effort: Effort = "default",
    contract: Contract = "strict",
    keep: Collection[str] = (),
    by_rules: bool = False,
    model_classes: Collection[str] = (),
    confirmed: Collection[str] = (),
    watch: Callable[[str], None] | None = None,
    containment: Containment = Containment(),
    on_start: Callable[[], None] | None = None,
) -> tuple[Verdict, ...]:
    """Run the file `original` and its version `changed` side by side; return one verdict per
    changed definition.

    `driver` is `module:function` (or `file.py:function`): called with either version's module it
    returns `(model, calls)`, each call a tuple of positional arguments or a dictionary of keywords.
    Without it, models are brought to life from configuration classes and constructor signatures.
    `time_limit` is in seconds of work; on the clock, a verification may take four times as long.
    `memory_limit` is in bytes. Both are for the child process run by `python`. With `effort`
    "default" definitions are also compared beyond their first inputs, with "high" every instance in
    every model is. The `contract` "strict" holds a change to everything that a caller can observe,
    hooks on submodules and attributes among it, "results" to outputs, gradients, random numbers and
    checkpoints. An ability that the changed version loses ("script" for TorchScript, "fx" for
    `torch.fx`, "order" for the order of hooks) is evidence; the change is not proved where `keep`
    names the ability or the file's package applies the transform to the definition. `by_rules`: the
    built-in rules made the change; then a class by itself may stand in for classes that only build
    it (docs/decisions/0015-parts-of-models.md). `model_classes`: the change applies to the model of
    `driver` alone, which has these classes of the file; what other classes do with a changed class,
    and other values of its options, do not matter then. `confirmed`: definitions that were proved
    before, with the same text, beside changes that are gone now; where these are all changed
    definitions, each is compared once more, briefly, and is "proved" where nothing differs.
    `watch` is called about twice a second with the definition that is run, or another word for what
    is done. `containment` says what the code that runs may do, and `on_start` is called before any
    of it runs. Reproducers of differences are written below `.cache/regraft/reproducers` of the
    current folder.

    Raises ValueError for another word in `keep`, VerifyError for a missing file, text that does not
    compile, an interpreter without torch, or a required sandbox that this system has not. A crash,
    a hang or a model that cannot be built is a verdict.
    """
    if unknown := sorted(set(keep) - set(LOSSES)):
        raise ValueError(f"unknown in keep: {unknown[0]!r}; it takes {', '.join(LOSSES)}")
    original_text = _read(original)
    if original_text == changed:
        return ()
    _check_syntax(original_text, original)
    _check_syntax(changed, original)
    changes = find_changes(original_text, changed)
    if not changes:
        return ()
    strict = contract == "strict"
    equal_programs = equal_definitions(original_text, changed, messages=strict)
    equal_if_returned = (
        equal_programs
        if strict
        else equal_definitions(original_text, changed, messages=False, return_classes=True)
    )
    job = _Job(
        original=original.resolve(),
        source=original_text,
        changed=changed,
        changes=changes,
        before=find_changes(changed, original_text),
        driver=driver,
        time_limit=time_limit,
        memory_limit=memory_limit,
        python=python,
        terms=Terms(
            effort,
            contract,
            tuple(sorted(keep)),
            by_rules,
            tuple(sorted(model_classes)),
            tuple(sorted(confirmed)),
        ),
        equal_programs=equal_programs,
        equal_if_returned=equal_if_returned - equal_programs,
        watch=None if watch is None else lambda step: watch(_name_of_step(step)),
        containment=replace(
            containment,
            readable=(*containment.readable, *readable_paths(original.resolve(), driver)),
        ),
    )
    containment.check()
    if on_start is not None:
        on_start()
    result, excluded = job.run()
    return tuple(_verdict(change, str(original), result, excluded, job) for change in changes)


def to_json(verdicts: Iterable[Verdict]) -> dict[str, Any]:
    """Return the JSON document (version 1) of verdicts, as a dictionary."""
    entries = [
        {
            "file": verdict.file,
            "class": verdict.definition,
            "lines": list(verdict.lines),
            "status": verdict.status,
            "reason": verdict.reason,
            "evidence": dict(verdict.evidence),
        }
        for verdict in verdicts
    ]
    return {"version": 1, "verdicts": entries}


def _read(path: Path) -> bytes:
    """Return the bytes of a file; raises VerifyError where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise VerifyError(f"cannot read the file: {error.strerror}", file=str(path)) from error


def _check_syntax(text: bytes, path: Path) -> None:
    """Raise VerifyError for text that does not parse, also for its encoding, and for text that only
    the compiler refuses (`return` outside of a function, a late `from __future__`).
    """
    step = "parse"
    try:
        tree = ast.parse(text)
        importlib.util.decode_source(text)  # ast reads a comment in any encoding
        step = "compile"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(tree, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise VerifyError(
            f"does not {step}: {error.msg}", str(path), error.lineno or 0, error.offset or 0
        ) from error
    except ValueError as error:
        raise VerifyError(f"does not {step}: {error}", str(path)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
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
        torch and for a driver that cannot be loaded.
        """
        deadline = time.monotonic() + _CLOCK * self.time_limit
        fatal_definitions: dict[str, str] = {}
        avoided_steps: list[str] = []
        while True:
            with tempfile.TemporaryDirectory(prefix="regraft-", ignore_cleanup_errors=True) as name:
                folder = Path(name)
                remaining_seconds = max(1.0, deadline - time.monotonic())
                self._write_request(
                    folder, remaining_seconds, tuple(fatal_definitions), avoided_steps
                )
                child_exit = run_child(
                    self.python,
                    folder,
                    remaining_seconds,
                    self.memory_limit,
                    self._imports(),
                    self.watch,
                    self.containment,
                )
                result = read_result(folder)
            if child_exit.how == "finished":
                break
            blamed = self._blame(child_exit, result)
            fatal_definitions.update(blamed)
            result = _add_end(result, child_exit, bool(blamed))
            crashed_steps = _steps_to_avoid(child_exit, avoided_steps)
            avoided_steps += crashed_steps
            must_stop = time.monotonic() > deadline - 1 or len(fatal_definitions) >= len(
                self.changes
            )
            if (
                not (blamed or crashed_steps)
                or must_stop
                or len(fatal_definitions) + len(avoided_steps) > _RETRIES
            ):
                break
        self._check_request_was_possible(result)
        return result, fatal_definitions

    def _check_request_was_possible(self, result: dict[str, Any]) -> None:
        """Raise VerifyError where the child had no torch or could not load the driver."""
        check_torch(result, self.python)
        fatal = result.get("fatal", {})
        if fatal.get("what") == "driver":
            reason = with_hint(fatal["reason"], self.containment, self.memory_limit)
            raise VerifyError(reason, file=str(self.driver))

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
            "same": (
                self.terms.effort != "high"
                and all(
                    change.definition in self.equal_programs | self.equal_if_returned
                    for change in self.changes
                )
            ),
            "same if returned": sorted(self.equal_if_returned),
            "confirms": self.only_confirms,
            "text": _changed_source(self.changed, self.changes),
        }
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")

    def _blame(self, child_exit: Exit, result: dict[str, Any]) -> dict[str, str]:
        """Return the definitions that caused a child's end, with the reason: the one that its last
        step names, else all that are not refuted.

        There are none unless the child ended in a step of the changed version that the original
        survived.
        """
        step = child_exit.step
        if (
            # what all processes use together is not the fault of the last step
            child_exit.how in ("time limit", "limit")
            or child_exit.code == INTERNAL
            or step.get("side") != "changed"
        ):
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
    without it: the changed version is not to blame, and the step was not to be avoided already."""
    step = child_exit.step
    ended_by_itself = child_exit.how in ("crashed", "limit")
    if ended_by_itself and step.get("side") in _NOT_CHANGED and step["what"] not in avoided_steps:
        return [step["what"]]
    return []


def _name_of_step(step: Mapping[str, Any]) -> str:
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


def check_torch(result: Mapping[str, Any], python: str) -> None:
    """Raise VerifyError where a child of an interpreter had no torch."""
    if result.get("fatal", {}).get("what") == "torch":
        raise VerifyError("torch is not installed in this Python interpreter", file=python)


def _add_end(result: dict[str, Any], child_exit: Exit, is_blamed: bool) -> dict[str, Any]:
    """Add the cause of a child's end to its result, in place, with the last line of its error
    output where no definition is to blame; return the result."""
    place = f", at {child_exit.step['what']!r}" if child_exit.step.get("what") else ""
    result["ended"] = f"the run did not finish: {child_exit.cause}{place}"
    if not is_blamed and child_exit.how == "crashed" and child_exit.stderr.strip():
        result["ended"] += f" ({child_exit.stderr.strip().splitlines()[-1][:200]})"
    return result


def _verdict(
    change: Change, file: str, result: dict[str, Any], fatal_definitions: dict[str, str], job: _Job
) -> Verdict:
    """Return the verdict for one change; writes a reproducer where it is "refuted", if a script can
    build the model. Unproven definitions that are the same program in both versions are proved."""
    record = result.get("records", {}).get(change.definition, {})
    status, reason = _decide(change, file, result, record, fatal_definitions, job.only_confirms)
    if status == "proved" and (loss := _forbidden_loss(change, record.get("losses", []), job)):
        status, reason = "unproven", loss
    evidence = evidence_of(change, result, record, job.terms.contract)
    if change.definition in job.equal_programs.union(result.get("returned classes", ())):
        evidence["same program"] = True
        if status == "unproven" and not result.get("fatal"):
            status, reason = "proved", ""
    domain = _with_containment(record.get("domain", {}), job)
    if domain:
        evidence["domain"] = domain
    notes, source = (domain.get("import", ()), job.source) if status == "unproven" else ((), b"")
    reason = with_hint(reason, job.containment, job.memory_limit, notes=notes, source=source)
    failure = record.get("failure", {})
    if status == "refuted" and failure.get("recipe") != {}:
        evidence["reproducer"] = write_reproducer(job.original, job.changed, failure, reason)
    return Verdict(file, change.definition, change.lines, status, reason, evidence)


def _with_containment(domain: Mapping[str, Any], job: _Job) -> dict[str, Any]:
    """Return the domain of a definition that ran, with hints at the sandbox after the notes of
    statements that failed at import, and with "environment": the variables that the file reads and
    does not get. {} for an empty domain."""
    if not domain:
        return {}
    notes = {
        "import": [
            with_hint(note, job.containment, job.memory_limit, source=job.source)
            for note in domain.get("import", ())
        ],
        "environment": [
            f"without {name} (--pass-env {name})"
            for name in kept_back_names(job.source, job.containment)
        ],
    }
    return {**domain, **{kind: labels for kind, labels in notes.items() if labels}}


def _decide(
    change: Change,
    file: str,
    result: dict[str, Any],
    record: dict[str, Any],
    fatal_definitions: dict[str, str],
    only_confirms: bool,
) -> tuple[Status, str]:
    """Return status and reason of one change: refuted where it ended a child, did not import or has
    a refuted record, unproven where evidence is missing, else proved with the reason "". With
    `only_confirms` a single comparison without a difference is enough."""
    fatal = result.get("fatal", {})
    if change.definition in fatal_definitions:
        return "refuted", fatal_definitions[change.definition]
    if fatal:
        return ("refuted" if fatal["what"] == "changed" else "unproven"), fatal["reason"]
    if record.get("refuted"):
        return "refuted", str(record["refuted"])
    reason = (
        missing_comparison(change, result, record, file)
        if only_confirms
        else missing_evidence(change, result, record, file)
    )
    return ("unproven", reason) if reason else ("proved", "")


def _forbidden_loss(change: Change, losses: list[str], job: _Job) -> str:
    """Return a sentence for the first loss that `keep` forbids or that concerns a transform which
    the repository applies, or "".
    """
    uses = transforms_applied_to(job.original, change.definition) if losses else {}
    for kind, function in LOSSES.items():
        for loss in (loss for loss in losses if loss.startswith(f"{function}:")):
            if kind in job.terms.keep:
                return f"it loses what --keep asks for: {loss}"
            if kind in uses:
                return f"it loses what {uses[kind]} does with it: {loss}"
    return ""
