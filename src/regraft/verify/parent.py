"""The side that never imports torch: compare texts, run the child, turn its findings into verdicts."""

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
_FINISH = 0.9  # of the time on the clock, after which the child saves what it has
_DEPTH = 3
_NOT_CHANGED = ("original", "mutant")  # sides of a run whose crash says nothing about the changed version
_FEWEST_MUTANTS = 4  # from which on half of them have to be killed
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
    """Run the file `original` and its version `changed` side by side; return one verdict per changed definition.

    `driver` is `module:function` (or `file.py:function`): called with either version's module it returns
    `(model, calls)`, each call a tuple of positional arguments or a dictionary of keywords. Without it, models are
    brought to life from configuration classes and constructor signatures. `time_limit` is in seconds of work, on the
    clock it may take four times as long; `memory_limit` is in bytes. Both are for the child process run by `python`.
    With `effort` "default" definitions are also compared beyond their first inputs, with "high" every instance in
    every model is. The `contract` "strict" holds a change to everything that a caller can observe, hooks on submodules
    and attributes among it, "results" to outputs, gradients, random numbers and checkpoints.
    What the changed version loses of TorchScript ("script"), `torch.fx` ("fx") and the order of hooks ("order") is
    evidence; it is not proved where `keep` names it or the file's package applies it to the definition.
    Reproducers of differences are written below `.cache/regraft/reproducers` of the current folder.

    Raises ValueError for another word in `keep`, VerifyError for a missing file, text that does not compile, or an
    interpreter without torch. A crash, a hang or a model that cannot be built is a verdict.
    """
    if unknown := sorted(set(keep) - set(LOSSES)):
        raise ValueError(f"unknown in keep: {unknown[0]!r}; it takes {', '.join(LOSSES)}")
    before = _read(original)
    if before == changed:
        return ()
    _check_syntax(before, original)
    _check_syntax(changed, original)
    changes = find_changes(before, changed)
    if not changes:
        return ()
    strict = contract == "strict"
    same = same_definitions(before, changed, messages=strict)
    more = same if strict else same_definitions(before, changed, messages=False, return_classes=True)
    job = _Job(
        original=original.resolve(),
        changed=changed,
        changes=changes,
        before=find_changes(changed, before),
        driver=driver,
        time_limit=time_limit,
        memory_limit=memory_limit,
        python=python,
        terms=Terms(effort, contract, tuple(sorted(keep))),
        same=same,
        same_if_returned=more - same,
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
    try:
        return path.read_bytes()
    except OSError as error:
        raise VerifyError(f"cannot read the file: {error.strerror}", file=str(path)) from error


def _check_syntax(text: bytes, path: Path) -> None:
    """Raise VerifyError for text that does not parse, and for what only the compiler refuses (`return` outside of a
    function, a late `from __future__`).
    """
    what = "parse"
    try:
        tree = ast.parse(text)
        what = "compile"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(tree, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise VerifyError(f"does not {what}: {error.msg}", str(path), error.lineno or 0, error.offset or 0) from error
    except ValueError as error:
        raise VerifyError(f"does not {what}: {error}", str(path)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """One verification: the request, the child runs, and who died of what.

    `same` names the definitions that are the same program in both versions, whatever could be run of them, and
    `same_if_returned` further ones that are if their decorators return the class that they are given.
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
    same: frozenset[str] = frozenset()
    same_if_returned: frozenset[str] = frozenset()

    def run(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Run children until one ends well; a definition that killed one is left out of the next, as is a model of
        the original that did.
        """
        deadline = time.monotonic() + _CLOCK * self.time_limit
        fallen: dict[str, str] = {}
        avoided: list[str] = []
        while True:
            with tempfile.TemporaryDirectory(prefix="regraft-", ignore_cleanup_errors=True) as name:
                folder = Path(name)
                left = max(1.0, deadline - time.monotonic())
                self._request(folder, left, tuple(fallen), avoided)
                ended = run_child(self.python, folder, left, self.memory_limit)
                result = _result(folder)
            if ended.how == "finished":
                break
            guilty = self._guilty(ended, result)
            fallen.update(guilty)
            result = _ended(result, ended, bool(guilty))
            died = [ended.step["what"]] if ended.how == "crashed" and ended.step.get("side") in _NOT_CHANGED else []
            avoided += died
            spent = time.monotonic() > deadline - 1 or len(fallen) >= len(self.changes)
            if not (guilty or died) or spent or len(fallen) + len(avoided) > _RETRIES:
                break
        if result.get("fatal", {}).get("what") == "torch":
            raise VerifyError("torch is not installed in this Python interpreter", file=self.python)
        if result.get("fatal", {}).get("what") == "driver":
            raise VerifyError(result["fatal"]["reason"], file=str(self.driver))
        return result, fallen

    def _request(self, folder: Path, seconds: float, excluded: tuple[str, ...], avoided: list[str]) -> None:
        source = folder.resolve().joinpath(*self.original.parts[1:][-_DEPTH:])  # without the root, which would win
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
            "avoided": avoided,
            "effort": self.terms.effort,
            "contract": self.terms.contract,
            "same": self.terms.effort != "high"
            and all(change.definition in self.same | self.same_if_returned for change in self.changes),
            "same if returned": sorted(self.same_if_returned),
            "text": _text(self.changed, self.changes),
        }
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")

    def _guilty(self, ended: Exit, result: dict[str, Any]) -> dict[str, str]:
        """Return who is to blame for a child's end: only a step of the changed version that the original survived."""
        step = ended.step
        if ended.how == "time limit" or ended.code == INTERNAL or step.get("side") != "changed":
            return {}
        reason = f"the changed version fails where the original works: {ended.cause}, at {step['what']!r}"
        if step.get("definition") in {change.definition for change in self.changes}:
            return {str(step["definition"]): reason}
        records = result.get("records", {})
        known = {name for name, record in records.items() if record["refuted"]}
        return {change.definition: reason for change in self.changes if change.definition not in known}


def _text(changed: bytes, changes: tuple[Change, ...]) -> str:
    """Return the source of the changed definitions."""
    names = {change.definition.partition("#")[0] for change in changes}
    nodes = [node for node in ast.parse(changed).body if getattr(node, "name", None) in names]
    return "\n\n".join(ast.unparse(node) for node in nodes)


def _result(folder: Path) -> dict[str, Any]:
    path = folder / "result.json"
    if not path.exists():
        return {}
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def _ended(result: dict[str, Any], ended: Exit, blamed: bool) -> dict[str, Any]:
    where = f", at {ended.step['what']!r}" if ended.step.get("what") else ""
    result["ended"] = f"the run did not finish: {ended.cause}{where}"
    if not blamed and ended.how == "crashed" and ended.stderr.strip():
        result["ended"] += f" ({ended.stderr.strip().splitlines()[-1][:200]})"
    return result


def _verdict(change: Change, file: str, result: dict[str, Any], fallen: dict[str, str], job: _Job) -> Verdict:
    record = result.get("records", {}).get(change.definition, {})
    status, reason = _decide(change, result, record, fallen)
    if status == "proved" and (loss := _lost(change, record.get("losses", []), job)):
        status, reason = "unproven", loss
    evidence = _evidence(change, result, record, job.terms.contract)
    if change.definition in job.same.union(result.get("returned classes", ())):
        evidence["same program"] = True
        if status == "unproven" and not result.get("fatal"):
            status, reason = "proved", ""
    if status == "refuted":
        evidence["reproducer"] = write_reproducer(job.original, job.changed, record.get("failure", {}), reason)
    return Verdict(file, change.definition, change.lines, status, reason, evidence)


def _decide(
    change: Change, result: dict[str, Any], record: dict[str, Any], fallen: dict[str, str]
) -> tuple[Status, str]:
    fatal = result.get("fatal", {})
    if change.definition in fallen:
        return "refuted", fallen[change.definition]
    if fatal:
        return ("refuted" if fatal["what"] == "changed" else "unproven"), fatal["reason"]
    if record.get("refuted"):
        return "refuted", str(record["refuted"])
    why = _unproven(change, result, record)
    return ("unproven", why) if why else ("proved", "")


def _unproven(change: Change, result: dict[str, Any], record: dict[str, Any]) -> str:
    """Return why the evidence is not enough, or nothing where it is."""
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
        return "; ".join(text for _, text in gaps[:5]) + (f" (and {len(gaps) - 5} more)" if len(gaps) > 5 else "")
    uncontrolled = result.get("uncontrolled", {}).get(change.definition, [])
    if uncontrolled:
        return "; ".join(uncontrolled[:3]) + f" (and {len(uncontrolled) - 3} more)" * (len(uncontrolled) > 3)
    strangers = result.get("strangers", {}).get(change.definition, [])
    if strangers:
        return "; ".join(strangers[:5]) + (f": {skipped}" if skipped else "")
    fields = result.get("constant fields", {}).get(change.definition, [])
    if fields:
        read = ", ".join(fields)
        return f"changed lines read {read}, and no model ran with another value: give one with --driver"
    return _indifferent(record["mutants"]) or _thin(record, result.get("skipped", []))


def _indifferent(mutants: dict[str, Any]) -> str:
    """Return that the inputs tell too few wrong versions from this one, or nothing where they do."""
    killed, number = mutants.get("killed", 0), mutants.get("of", 0)
    few = number >= _FEWEST_MUTANTS and 2 * killed < number
    if not few and (killed or not number):
        return ""
    examples = "; ".join(mutants["survived"][:2])
    return f"the inputs kill only {killed} of {number} mutants of the changed lines ({examples})"


def _lost(change: Change, losses: list[str], job: _Job) -> str:
    """Return the first loss that somebody minds: the caller, or the repository, which scripts or traces it."""
    uses = uses_of(job.original, change.definition) if losses else {}
    for kind, function in LOSSES.items():
        for loss in (loss for loss in losses if loss.startswith(f"{function}:")):
            if kind in job.terms.keep:
                return f"it loses what --keep asks for: {loss}"
            if kind in uses:
                return f"it loses what {uses[kind]} does with it: {loss}"
    return ""


def _thin(record: dict[str, Any], reasons: list[str]) -> str:
    """Return which of the required conditions the comparisons did not cover."""
    skipped = "; ".join(reasons[:3])
    if set(record["modes"]) != {"eval", "train"}:
        return f"compared in {' and '.join(record['modes'])} mode only" + (f": {skipped}" if skipped else "")
    if len(record["seeds"]) < 2:
        return "compared with one seed only" + (f": {skipped}" if skipped else "")
    if len(record["shapes"]) < 2:
        return "compared with one shape only: give calls of two shapes"
    for dtype in HALVES:
        if dtype not in record["dtypes"] and not _impossible(dtype, record, reasons):
            return f"not compared in {dtype}" + (f": {skipped}" if skipped else "")
    return ""


def _impossible(dtype: str, record: dict[str, Any], reasons: list[str]) -> bool:
    """Whether no model at hand runs in a number format even in its original version: nothing could differ there."""
    refused = [reason for reason in reasons if f"the original does not run in {dtype}" in reason]
    return all(any(reason.startswith(f"{model} (") for reason in refused) for model in record["models"])


def _evidence(
    change: Change, result: dict[str, Any], record: dict[str, Any], contract: Contract
) -> dict[str, object]:
    missing = {line for line, _ in result.get("gaps", {}).get(change.definition, [])}
    reached = set(result.get("levels", [])) | {"parses"}
    if record and not record.get("refuted") and (record.get("replays") or record.get("wholes")):
        reached |= {"outputs"} | ({"gradients"} if record["gradients"] else set())
        reached |= set() if missing else {"lines executed"}
    kept = {name: value for name, value in record.items() if name not in ("refuted", "failure", "gradients")}
    failure = {k: v for k, v in record.get("failure", {}).items() if k not in ("data", "recipe")}
    ran = [start for start, _ in change.statements if start not in missing]
    return {
        "levels": [level for level in LEVELS if level in reached],
        **kept,
        "gradient comparisons": record.get("gradients", 0),
        "lines executed": ran if record else [],
        "lines not executed": sorted(missing),
        "relatives not run": result.get("strangers", {}).get(change.definition, []),
        "implementations": result.get("implementations", []),
        "skipped": result.get("skipped", []),
        "contract": contract,
        **({"failure": failure} if failure else {}),
    }
