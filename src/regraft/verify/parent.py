"""The side that never imports torch: compare texts, run the child and turn the child's findings
into verdicts."""

from __future__ import annotations

import ast
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regraft.verify.changes import Change, find_changes
from regraft.verify.process import Exit, run_child
from regraft.verify.reproduce import write_reproducer
from regraft.verify.sameness import same_definitions
from regraft.verify.transform_uses import uses_of
from regraft.verify.types import (
    INTERNAL,
    LEVELS,
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
_DEPTH = 3
# sides of a run whose crash says nothing about the changed version
_NOT_CHANGED = (
    "original",
    "mutant",
)
_FEWEST_MUTANTS = 4  # from this number on, half of the mutants have to be killed
MEMORY_LIMIT = 8 * 1024**3
HALVES = ("bfloat16", "float16")


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
    names the ability or the file's package applies the transform to the definition. Reproducers of
    differences are written below `.cache/regraft/reproducers` of the current folder.

    Raises ValueError for another word in `keep`, VerifyError for a missing file, text that does not
    compile, or an interpreter without torch. A crash, a hang or a model that cannot be built is a
    verdict.
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
    same_programs = same_definitions(original_text, changed, messages=strict)
    same_if_returned = (
        same_programs
        if strict
        else same_definitions(original_text, changed, messages=False, return_classes=True)
    )
    job = _Job(
        original=original.resolve(),
        changed=changed,
        changes=changes,
        before=find_changes(changed, original_text),
        driver=driver,
        time_limit=time_limit,
        memory_limit=memory_limit,
        python=python,
        terms=Terms(effort, contract, tuple(sorted(keep))),
        same_programs=same_programs,
        same_if_returned=same_if_returned - same_programs,
    )
    result, excluded = job.run()
    return tuple(_verdict(change, str(original), result, excluded, job) for change in changes)


def to_json(verdicts: Iterable[Verdict]) -> dict[str, Any]:
    """Return verdicts as the JSON document of version 1."""
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
    """Raise VerifyError for text that does not parse, and for text that only the compiler refuses
    (`return` outside of a function, a late `from __future__`).
    """
    step = "parse"
    try:
        tree = ast.parse(text)
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

    `before` are the changes from the changed version back to the original. `same_programs` names
    the definitions that are the same program in both versions, whatever could be run of them, and
    `same_if_returned` further ones that are if their decorators return the class that they are
    given.
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
    same_programs: frozenset[str] = frozenset()
    same_if_returned: frozenset[str] = frozenset()

    def run(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Run children until one finishes; return its result, and the reason by definition for each
        definition that ended a child.

        A definition that ended a child is excluded from the next one, and a step of the original
        that crashed it is avoided. Raises VerifyError for an interpreter without torch and for a
        driver that cannot be loaded.
        """
        deadline = time.monotonic() + _CLOCK * self.time_limit
        fatal_definitions: dict[str, str] = {}
        avoided_steps: list[str] = []
        while True:
            with tempfile.TemporaryDirectory(prefix="regraft-", ignore_cleanup_errors=True) as name:
                folder = Path(name)
                seconds_left = max(1.0, deadline - time.monotonic())
                self._request(folder, seconds_left, tuple(fatal_definitions), avoided_steps)
                child_exit = run_child(self.python, folder, seconds_left, self.memory_limit)
                result = _read_result(folder)
            if child_exit.how == "finished":
                break
            blamed = self._blame(child_exit, result)
            fatal_definitions.update(blamed)
            result = _add_end(result, child_exit, bool(blamed))
            crashed_steps = (
                [child_exit.step["what"]]
                if child_exit.how == "crashed" and child_exit.step.get("side") in _NOT_CHANGED
                else []
            )
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
        if result.get("fatal", {}).get("what") == "torch":
            raise VerifyError("torch is not installed in this Python interpreter", file=self.python)
        if result.get("fatal", {}).get("what") == "driver":
            raise VerifyError(result["fatal"]["reason"], file=str(self.driver))
        return result, fatal_definitions

    def _request(
        self, folder: Path, seconds: float, excluded: tuple[str, ...], avoided_steps: list[str]
    ) -> None:
        """Write the request of one child, and the changed version, below `folder`; `seconds` are on
        the clock."""
        # without the root, which would win
        source = folder.resolve().joinpath(*self.original.parts[1:][-_DEPTH:])
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_bytes(self.changed)
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
            "same": (
                self.terms.effort != "high"
                and all(
                    change.definition in self.same_programs | self.same_if_returned
                    for change in self.changes
                )
            ),
            "same if returned": sorted(self.same_if_returned),
            "text": _changed_source(self.changed, self.changes),
        }
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")

    def _blame(self, child_exit: Exit, result: dict[str, Any]) -> dict[str, str]:
        """Return the definitions that caused a child's end, with the reason.

        There are none unless the child ended in a step of the changed version that the original
        survived.
        """
        step = child_exit.step
        if (
            child_exit.how == "time limit"
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


def _changed_source(changed: bytes, changes: tuple[Change, ...]) -> str:
    """Return the source of the changed definitions."""
    names = {change.definition.partition("#")[0] for change in changes}
    nodes = [node for node in ast.parse(changed).body if getattr(node, "name", None) in names]
    return "\n\n".join(ast.unparse(node) for node in nodes)


def _read_result(folder: Path) -> dict[str, Any]:
    """Return the result that a child saved, empty where it saved none."""
    path = folder / "result.json"
    if not path.exists():
        return {}
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def _add_end(result: dict[str, Any], child_exit: Exit, is_blamed: bool) -> dict[str, Any]:
    """Add the cause of a child's end to its result, with the last line of its error output where no
    definition is to blame.
    """
    place = f", at {child_exit.step['what']!r}" if child_exit.step.get("what") else ""
    result["ended"] = f"the run did not finish: {child_exit.cause}{place}"
    if not is_blamed and child_exit.how == "crashed" and child_exit.stderr.strip():
        result["ended"] += f" ({child_exit.stderr.strip().splitlines()[-1][:200]})"
    return result


def _verdict(
    change: Change, file: str, result: dict[str, Any], fatal_definitions: dict[str, str], job: _Job
) -> Verdict:
    """Return the verdict for one change; writes a reproducer where it is "refuted"."""
    record = result.get("records", {}).get(change.definition, {})
    status, reason = _decide(change, result, record, fatal_definitions)
    if status == "proved" and (loss := _forbidden_loss(change, record.get("losses", []), job)):
        status, reason = "unproven", loss
    evidence = _evidence(change, result, record, job.terms.contract)
    if change.definition in job.same_programs.union(result.get("returned classes", ())):
        evidence["same program"] = True
        if status == "unproven" and not result.get("fatal"):
            status, reason = "proved", ""
    if status == "refuted":
        evidence["reproducer"] = write_reproducer(
            job.original, job.changed, record.get("failure", {}), reason
        )
    return Verdict(file, change.definition, change.lines, status, reason, evidence)


def _decide(
    change: Change,
    result: dict[str, Any],
    record: dict[str, Any],
    fatal_definitions: dict[str, str],
) -> tuple[Status, str]:
    """Return status and reason of one change from the child's result alone."""
    fatal = result.get("fatal", {})
    if change.definition in fatal_definitions:
        return "refuted", fatal_definitions[change.definition]
    if fatal:
        return ("refuted" if fatal["what"] == "changed" else "unproven"), fatal["reason"]
    if record.get("refuted"):
        return "refuted", str(record["refuted"])
    reason = _missing_evidence(change, result, record)
    return ("unproven", reason) if reason else ("proved", "")


def _missing_evidence(change: Change, result: dict[str, Any], record: dict[str, Any]) -> str:
    """Return the reason why the evidence is not enough for a proof, or "" where it is."""
    gaps = result.get("gaps", {}).get(change.definition, [])
    skipped = "; ".join(result.get("skipped", [])[:3])
    if change.kind == "removed":
        return "the definition is gone from the changed version: there is nothing to compare"
    if change.obstacle:
        return change.obstacle
    if change.kind == "text":
        return ""
    if result.get("ended") and change.definition not in result.get("complete", []):
        return str(result["ended"])
    if not record or not (record["replays"] or record["wholes"]):
        return "nothing brought it to life" + (f": {skipped}" if skipped else "")
    gaps = [*gaps, *result.get("gaps before", {}).get(change.definition, [])]
    if gaps:
        return "; ".join(text for _, text in gaps[:5]) + (
            f" (and {len(gaps) - 5} more)" if len(gaps) > 5 else ""
        )
    uncontrolled = result.get("uncontrolled", {}).get(change.definition, [])
    if uncontrolled:
        return "; ".join(uncontrolled[:3]) + f" (and {len(uncontrolled) - 3} more)" * (
            len(uncontrolled) > 3
        )
    relatives = result.get("strangers", {}).get(change.definition, [])
    if relatives:
        return "; ".join(relatives[:5]) + (f": {skipped}" if skipped else "")
    fields = result.get("constant fields", {}).get(change.definition, [])
    if fields:
        field_list = ", ".join(fields)
        return (
            f"changed lines read {field_list}, and no model ran with another value: give one with"
            " --driver"
        )
    return _weak_inputs(record["mutants"]) or _missing_condition(record, result.get("skipped", []))


def _weak_inputs(mutants: dict[str, Any]) -> str:
    """Return a sentence where the inputs distinguish too few mutants from the changed version, or
    ""."""
    killed, total = mutants.get("killed", 0), mutants.get("of", 0)
    kills_too_few = total >= _FEWEST_MUTANTS and 2 * killed < total
    if not kills_too_few and (killed or not total):
        return ""
    examples = "; ".join(mutants["survived"][:2])
    return f"the inputs kill only {killed} of {total} mutants of the changed lines ({examples})"


def _forbidden_loss(change: Change, losses: list[str], job: _Job) -> str:
    """Return a sentence for the first loss that `keep` forbids or that concerns a transform which
    the repository applies, or "".
    """
    uses = uses_of(job.original, change.definition) if losses else {}
    for kind, function in LOSSES.items():
        for loss in (loss for loss in losses if loss.startswith(f"{function}:")):
            if kind in job.terms.keep:
                return f"it loses what --keep asks for: {loss}"
            if kind in uses:
                return f"it loses what {uses[kind]} does with it: {loss}"
    return ""


def _missing_condition(record: dict[str, Any], skip_reasons: list[str]) -> str:
    """Return a sentence for the first required condition that the comparisons did not
    cover, or ""."""
    skipped = "; ".join(skip_reasons[:3])
    if set(record["modes"]) != {"eval", "train"}:
        return f"compared in {' and '.join(record['modes'])} mode only" + (
            f": {skipped}" if skipped else ""
        )
    if len(record["seeds"]) < 2:
        return "compared with one seed only" + (f": {skipped}" if skipped else "")
    if len(record["shapes"]) < 2:
        return "compared with one shape only: give calls of two shapes"
    for dtype in HALVES:
        if dtype not in record["dtypes"] and not _is_impossible_format(dtype, record, skip_reasons):
            return f"not compared in {dtype}" + (f": {skipped}" if skipped else "")
    return ""


def _is_impossible_format(dtype: str, record: dict[str, Any], skip_reasons: list[str]) -> bool:
    """Return whether no model at hand runs in a number format even in its original version: nothing
    could differ there.
    """
    refused = [
        reason for reason in skip_reasons if f"the original does not run in {dtype}" in reason
    ]
    return all(
        any(reason.startswith(f"{model} (") for reason in refused) for model in record["models"]
    )


def _evidence(
    change: Change, result: dict[str, Any], record: dict[str, Any], contract: Contract
) -> dict[str, object]:
    """Return the evidence of a verdict, as it stands in the JSON document."""
    missing_lines = {line for line, _ in result.get("gaps", {}).get(change.definition, [])}
    reached_levels = set(result.get("levels", [])) | {"parses"}
    if record and not record.get("refuted") and (record.get("replays") or record.get("wholes")):
        reached_levels |= {"outputs"} | ({"gradients"} if record["gradients"] else set())
        reached_levels |= set() if missing_lines else {"lines executed"}
    fields = {
        name: value
        for name, value in record.items()
        if name not in ("refuted", "failure", "gradients")
    }
    failure = {
        name: value
        for name, value in record.get("failure", {}).items()
        if name not in ("data", "recipe")
    }
    run_lines = [start for start, _ in change.statements if start not in missing_lines]
    return {
        "levels": [level for level in LEVELS if level in reached_levels],
        **fields,
        "gradient comparisons": record.get("gradients", 0),
        "lines executed": run_lines if record else [],
        "lines not executed": sorted(missing_lines),
        "relatives not run": result.get("strangers", {}).get(change.definition, []),
        "builders not run": result.get("builders not run", {}).get(change.definition, []),
        "implementations": result.get("implementations", []),
        "skipped": result.get("skipped", []),
        "contract": contract,
        **({"failure": failure} if failure else {}),
    }
