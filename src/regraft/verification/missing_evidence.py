"""The evidence for a change in the result of a child process, and the reasons why it is not enough
for a proof."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regraft.verification.definition_changes import Change
from regraft.verification.types import LEVELS, Contract

HALVES = ("bfloat16", "float16")
_PRECISION_RATIO = 1.5  # of mean errors in half precision
_FEWEST_MUTANTS = 4  # from this number on, half of the mutants have to be killed
# the most gaps, and parts that no input decided, that one reason lists
_GAPS, _PARTS = 5, 3


@dataclass(frozen=True, slots=True)
class _Findings:
    """The result of a child as far as it concerns one change; `record` is that of the definition,
    empty where nothing ran, `file` the path of the original."""

    change: Change
    result: Mapping[str, Any]
    record: Mapping[str, Any]
    file: str = ""

    def entries(self, kind: str) -> list[Any]:
        """Return the list that the result has for the definition under the key `kind`, such as
        "gaps"; empty where it has none."""
        entries: list[Any] = self.result.get(kind, {}).get(self.change.definition, [])
        return entries

    @property
    def next_step(self) -> str:
        """Return the sentence that tells how to run the definition by hand: in the driver, where
        one was given."""
        if "user" in self.record.get("drivers", ()):
            return ". Add a call that does to the driver"
        if self.change.kind == "class":
            return f". Write a driver: regraft driver {self.file} --class {self.change.definition}"
        return ". A driver can call it: regraft verify --driver MODULE:FUNCTION"

    @property
    def skip_reasons(self) -> list[str]:
        """Return the reasons why models or comparisons were left out."""
        reasons: list[str] = self.result.get("skipped", [])
        return reasons

    @property
    def skipped(self) -> str:
        """Return the first three of `skip_reasons` as text behind a colon, "" where there are none:
        those about the definition and its relatives, then those about no definition; those about
        others only where there are no such reasons."""
        names = {
            self.change.definition,
            *(text.split(",")[0] for text in self.entries("relatives not run")),
        }
        subjects = [(_subject_of(reason), reason) for reason in self.skip_reasons]
        own = [reason for subject, reason in subjects if subject in names]
        general = [reason for subject, reason in subjects if not subject]
        text = "; ".join(([*own, *general] or self.skip_reasons)[:3])
        return f": {text}" if text else ""


def _subject_of(reason: str) -> str:
    """Return the name of the definition that a reason for leaving something out begins with; "" for
    a reason about the whole run."""
    name = re.match(r"(\w+)(?:\(|\.| \(|, | as a whole| of \S+ \()", reason)
    return name[1] if name else ""


def missing_evidence(
    change: Change, result: Mapping[str, Any], record: Mapping[str, Any], file: str
) -> str:
    """Return the first reason why the evidence is not enough for a proof, or "" where it is. A
    removed definition, and a change with an obstacle, always have a reason; a change of kind "text"
    never has one, and needs no evidence. `file` is the path of the original."""
    if change.kind == "removed":
        return "the definition is gone from the changed version: there is nothing to compare"
    if change.obstacle:
        return change.obstacle
    if change.kind == "text":
        return ""
    findings = _Findings(change, result, record, file)
    reasons = (check(findings) for check in _CHECKS)
    return next((reason for reason in reasons if reason), "")


def missing_comparison(
    change: Change, result: Mapping[str, Any], record: Mapping[str, Any], file: str
) -> str:
    """Return why the child ended early or never compared the definition, or "" where neither is so;
    `file` is the path of the original."""
    findings = _Findings(change, result, record, file)
    return str(result.get("ended") or "") or _absent_runs(findings)


def _early_end(findings: _Findings) -> str:
    """Return the reason why the child ended before the definition was complete, or "" where it
    was."""
    is_complete = findings.change.definition in findings.result.get("complete", [])
    return "" if is_complete else str(findings.result.get("ended") or "")


def _absent_runs(findings: _Findings) -> str:
    """Return a sentence where nothing ran the definition in both versions, "" where something
    did."""
    if _ran(findings.record):
        return ""
    return f"nothing ran its changed lines{findings.skipped}{findings.next_step}"


def _unrun_own_model(findings: _Findings) -> str:
    """Return a sentence where the definition was not compared on the user's slow model, or not in
    all ways before the time limit; "" where it was, or where no such model is required."""
    name = findings.result.get("own model", "")
    if name and findings.result["own model pending"]:
        return f"the time limit was reached before all comparisons on {name}"
    if name and name not in findings.record["models"]:
        return f"it was not compared on {name}{findings.skipped}"
    return ""


def _unrun_lines(findings: _Findings) -> str:
    """Return the first five lines and conditions of either version that did not run, as text; ""
    where all ran."""
    gaps = [*findings.entries("gaps"), *findings.entries("gaps before")]
    return _with_next_step(_list_first([text for _, text in gaps], _GAPS), findings)


def _uncontrolled_parts(findings: _Findings) -> str:
    """Return the first parts that no input decided, as text, or "": conditions with one result,
    attributes with one value, declarations, and reads of the process."""
    return _with_next_step(_list_first(findings.entries("uncontrolled"), _PARTS), findings)


def _with_next_step(text: str, findings: _Findings) -> str:
    """Return a reason with the sentence that tells how to give the missing inputs; "" for ""."""
    return text and text + findings.next_step


def _unrun_relatives(findings: _Findings) -> str:
    """Return the first five relatives of the definition that did not run, as text, or ""."""
    relatives = findings.entries("relatives not run")
    return "; ".join(relatives[:5]) + findings.skipped + findings.next_step if relatives else ""


def _constant_fields(findings: _Findings) -> str:
    """Return a sentence with the options that changed lines read and that had one value in all
    models; "" where there are none."""
    fields = findings.entries("constant fields")
    if not fields:
        return ""
    return (
        f"changed lines read {', '.join(fields)}, and no model ran with another value:"
        " give one with --driver"
    )


def _weak_inputs(findings: _Findings) -> str:
    """Return a sentence where the comparisons found fewer than half of four or more mutants
    different, or none of fewer; "" elsewhere, and where there were no mutants."""
    mutants = findings.record["mutants"]
    killed, total = mutants.get("killed", 0), mutants.get("of", 0)
    kills_too_few = total >= _FEWEST_MUTANTS and 2 * killed < total
    if not kills_too_few and (killed or not total):
        return ""
    examples = "; ".join(mutants["survived"][:2])
    return f"the inputs kill only {killed} of {total} mutants of the changed lines ({examples})"


def _lost_precision(findings: _Findings) -> str:
    """Return a sentence for the first result in half precision whose mean error is more than
    `_PRECISION_RATIO` times the original's, or is not zero where the original's is; "" where there
    is none."""
    all_errors = (
        (dtype, original, changed)
        for dtype, errors in findings.record["half precision errors"].items()
        for original, changed in errors.values()
    )
    for dtype, original, changed in all_errors:
        if changed > _PRECISION_RATIO * original > 0:
            return (
                f"results in {dtype} are less precise: they are {changed / original:.1f} times as"
                " far from those in float64 as the original's"
            )
        if changed > original == 0:
            return f"results in {dtype} are rounded, and the original's are exact"
    return ""


def _missing_condition(findings: _Findings) -> str:
    """Return a sentence for the first condition of a proof that the comparisons did not meet: both
    modes, two seeds, two shapes, and the half-precision formats that a model of the original can
    run in; "" where all are met."""
    record = findings.record
    if set(record["modes"]) != {"eval", "train"}:
        return f"compared in {' and '.join(record['modes'])} mode only{findings.skipped}"
    if len(record["seeds"]) < 2:
        return f"compared with one seed only{findings.skipped}"
    if len(record["shapes"]) < 2 and record["shapes"] != ["[]"]:  # without tensors
        return "compared with one shape only: give calls of two shapes"
    for dtype in HALVES:
        if dtype not in record["dtypes"] and not _is_impossible_format(dtype, findings):
            return f"not compared in {dtype}{findings.skipped}"
    return ""


_CHECKS = (
    _early_end,
    _absent_runs,
    _unrun_own_model,
    _unrun_lines,
    _uncontrolled_parts,
    _unrun_relatives,
    _constant_fields,
    _lost_precision,
    _weak_inputs,
    _missing_condition,
)


def _is_impossible_format(dtype: str, findings: _Findings) -> bool:
    """Return whether, for each model that compared the definition, a skip reason says that even the
    original does not run in the number format `dtype`; False where there is no model."""
    refused = [
        reason
        for reason in findings.skip_reasons
        if f"the original does not run in {dtype}" in reason
    ]
    models = findings.record["models"]
    return bool(models) and all(
        any(reason.startswith(f"{model} (") for reason in refused) for model in models
    )


def _list_first(texts: Sequence[str], limit: int) -> str:
    """Return the first texts as one, with the number of those omitted; "" for no texts."""
    omitted = f" (and {len(texts) - limit} more)" if len(texts) > limit else ""
    return "; ".join(texts[:limit]) + omitted


def _ran(record: Mapping[str, Any]) -> bool:
    """Return whether a comparison of a definition ran, by itself or in a whole model."""
    return bool(record) and bool(record.get("replays") or record.get("wholes"))


def evidence_of(
    change: Change, result: Mapping[str, Any], record: Mapping[str, Any], contract: Contract
) -> dict[str, object]:
    """Return the evidence of a verdict, as it stands in the JSON document: the levels reached, what
    was counted, and the lines and relatives that did not run. `record` is that of the definition,
    empty where nothing ran."""
    findings = _Findings(change, result, record)
    missing_lines = {line for line, _ in findings.entries("gaps")}
    reached_levels = _reached_levels(findings, missing_lines)
    failure = _without(record.get("failure", {}), ("data", "recipe"))
    run_lines = [start for start, _ in change.statements if start not in missing_lines]
    return {
        "levels": [level for level in LEVELS if level in reached_levels],
        **_without(record, ("refuted", "failure", "gradients")),
        "gradient comparisons": record.get("gradients", 0),
        "lines executed": run_lines if record else [],
        "lines not executed": sorted(missing_lines),
        "relatives not run": findings.entries("relatives not run"),
        "builders not run": findings.entries("builders not run"),
        "implementations": result.get("implementations", []),
        "skipped": findings.skip_reasons,
        "contract": contract,
        **({"failure": failure} if failure else {}),
        **({"missing modules": missing} if (missing := result.get("missing modules")) else {}),
    }


def _reached_levels(findings: _Findings, missing_lines: Collection[int]) -> set[str]:
    """Return the levels of LEVELS that the comparisons reached; those of a definition are missing
    where it is refuted."""
    levels = set(findings.result.get("levels", [])) | {"parses"}
    record = findings.record
    if not _ran(record) or record.get("refuted"):
        return levels
    levels.add("outputs")
    if record["gradients"]:
        levels.add("gradients")
    if not missing_lines:
        levels.add("lines executed")
    return levels


def _without(entries: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return the entries of a mapping without some names."""
    return {name: value for name, value in entries.items() if name not in names}
