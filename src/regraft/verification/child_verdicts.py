"""The verdict on a changed definition, from the result of the child process and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regraft.verification.child_job import Job
from regraft.verification.containment_hints import kept_back_names, with_hint
from regraft.verification.definition_changes import Change
from regraft.verification.lost_messages import lost_messages
from regraft.verification.missing_evidence import evidence_of, missing_comparison, missing_evidence
from regraft.verification.reproducer_script import write_reproducer
from regraft.verification.torchscript_and_fx_uses import transforms_applied_to
from regraft.verification.types import LOSSES, Status, Verdict


# sides of a run whose crash says nothing about the changed version
def verdict_on(
    change: Change, file: str, result: dict[str, Any], fatal_definitions: dict[str, str], job: Job
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
    if status == "proved" and not job.terms.by_rules:
        losses = lost_messages(job.source, job.changed, change.definition)
        evidence["losses"] = [*record.get("losses", ()), *losses]
    domain = _with_containment(record.get("domain", {}), job)
    if domain:
        evidence["domain"] = domain
    notes, source = (domain.get("import", ()), job.source) if status == "unproven" else ((), b"")
    reason = with_hint(
        reason,
        job.containment,
        job.memory_limit,
        notes=notes,
        source=source,
        absent=result.get("files absent", ()),
    )
    failure = record.get("failure", {})
    if status == "refuted" and failure.get("recipe") != {}:
        evidence["reproducer"] = write_reproducer(job.original, job.changed, failure, reason)
    return Verdict(file, change.definition, change.lines, status, reason, evidence)


def _with_containment(domain: Mapping[str, Any], job: Job) -> dict[str, Any]:
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
    missing = missing_comparison if only_confirms else missing_evidence
    reason = missing(change, result, record, file)
    return ("unproven", reason) if reason else ("proved", "")


def _forbidden_loss(change: Change, losses: list[str], job: Job) -> str:
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
