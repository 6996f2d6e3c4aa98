"""The evidence that a request saves: what was run, compared and left out."""

from __future__ import annotations

from collections.abc import Iterator

from regraft.verification.child import cuda_calls
from regraft.verification.child.checks.argument_combinations import sets_read_together
from regraft.verification.child.checks.attribute_variants import ATTRIBUTES
from regraft.verification.child.checks.comparison_domain import domain_of, reads_of_arguments
from regraft.verification.child.checks.declaration_comparison import undecided_declarations
from regraft.verification.child.checks.device_settings import changed_device_settings
from regraft.verification.child.checks.left_out_statements import reads_of_left_out
from regraft.verification.child.checks.options_read import unvaried_options
from regraft.verification.child.checks.process_reads import new_process_reads
from regraft.verification.child.evidence_record import Ledger
from regraft.verification.child.session import Session
from regraft.verification.definition_changes import Change


def save_evidence(session: Session) -> None:
    """Write into the ledger what the evidence for each change lacks so far, and save it, so that a
    later end of this process takes nothing away.

    What lacks are lines that did not run, relatives and builders that did not run, surviving
    mutants, what no input decided, and fields with one value; the last two only where
    `session.beyond` is set, and fields only without model classes. Changes that lack nothing become
    complete, unless the time is up: the last comparisons may then have been cut short.
    """
    ledger, changes = session.ledger, session.changes
    ledger.gaps = {change.definition: list(session.tracer.gaps(change)) for change in changes}
    ledger.gaps_in_original = {
        change.definition: list(session.gaps_in_original(change)) for change in changes
    }
    ledger.relatives_not_run = {
        change.definition: list(session.relatives_not_run(change)) for change in changes
    }
    ledger.builders_not_run = {
        change.definition: list(session.builders_not_run(change)) for change in changes
    }
    if session.mutants is not None:
        for change in changes:
            ledger.records[change.definition].mutants = session.mutants.score(change.definition)
    if session.beyond:
        ledger.uncontrolled = {
            change.definition: list(_uncontrolled_parts(change, session)) for change in changes
        }
    ledger.implementations = session.tracer.kernels
    _note_cuda_calls(ledger)
    ledger.constant_fields = {
        change.definition: list(unvaried_options(change.definition, session))
        for change in changes
        if session.beyond and not session.model_classes
    }
    if not ledger.is_late():  # the last comparisons were not cut short
        ledger.complete |= {
            change.definition for change in changes if not session.lacks_evidence(change)
        }
    ledger.save()


def _note_cuda_calls(ledger: Ledger) -> None:
    """Note in the domains of all definitions that calls of `cuda()` moved nothing."""
    if cuda_calls.were_called():
        for record in ledger.records.values():
            record.domain.setdefault("devices", set()).add(cuda_calls.LABEL)


def _uncontrolled_parts(change: Change, session: Session) -> Iterator[str]:
    """Yield a sentence for each part of a change that no input decided: a condition with only one
    result, an attribute with only one value, a declaration, a read of the process, a setting of a
    device that is not here, a new number that could be another, or a variable that statements left
    out of the import may set. Attributes are left out where the session has model classes."""
    yield from session.condition_gaps(change.definition)
    labels = session.ledger.records[change.definition].domain.get(ATTRIBUTES, set())
    late = domain_of(change.definition, session).late
    if not session.model_classes:
        yield from session.late.unvaried(change.definition, late, labels, by_rules=session.by_rules)
    yield from _arguments_not_combined(change.definition, session)
    yield from undecided_declarations(change, session.changed, session.original)
    yield from new_process_reads(change, session.changed, session.original)
    if not session.by_rules:
        yield from changed_device_settings(change, session.changed, session.original)
    yield from session.undecided_numbers(change.definition)
    if not session.has_shown_equality(change.definition):
        old_changes = (
            old for old in session.original_tracer.changes if old.definition == change.definition
        )
        yield from dict.fromkeys(
            reads_of_left_out(change, next(old_changes, None), session.changed, session.original)
        )


def _arguments_not_combined(definition: str, session: Session) -> Iterator[str]:
    """Yield a sentence for each set of arguments that changed lines of a definition name together
    and that no comparison gave together."""
    for key, names in session.combined_arguments.items():
        if key[0] != definition:
            continue
        sets_given = session.given_together.get(key, set())
        for together in sets_read_together(frozenset(names), reads_of_arguments(*key, session)):
            if not any(together <= names_given for names_given in sets_given):
                yield (
                    f"changed lines read the arguments {', '.join(sorted(together))}, and no"
                    " comparison gave another value to all of them: give such a call with --driver"
                )
