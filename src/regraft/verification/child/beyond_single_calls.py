"""Comparisons beyond single calls: dropout, training, copies, captured graphs, scripts and
traces."""

from __future__ import annotations

from dataclasses import replace

from regraft.verification.child import call_arguments, weights
from regraft.verification.child.call_comparison import sides_of
from regraft.verification.child.call_recording import Recorded
from regraft.verification.child.call_variants import AS_RECORDED
from regraft.verification.child.checks.argument_variants import calls_with_rates_around
from regraft.verification.child.checks.comparison_domain import domain_of
from regraft.verification.child.comparison_setting import (
    SEEDS,
    Setting,
    as_difference,
    depth,
    has_counterpart,
    make_pair,
    record_calls,
    sentence_with_place,
)
from regraft.verification.child.comparison_terms import Difference
from regraft.verification.child.device_placement import compare_placement
from regraft.verification.child.drivers.driver_protocol import Subject
from regraft.verification.child.failure_description import describe_failure
from regraft.verification.child.graph_capture import compare_captures
from regraft.verification.child.model_pair import Pair, build_both
from regraft.verification.child.random_results import compare_random
from regraft.verification.child.reverted_definitions import blame, revert
from regraft.verification.child.script_and_trace import compare_transformed
from regraft.verification.child.session import Session
from regraft.verification.child.training_and_copies import (
    CheckOverTime,
    compare_copies,
    compare_training,
)


def examine_beyond_calls(subject: Subject, session: Session) -> None:
    """Compare the behaviour of a subject (a model with calls) that single calls do not show, refute
    definitions by it and revert these, and save the ledger. A light subject is compared with
    dropout on at most, where it drops values. Do nothing where time is up, or where every
    definition is refuted."""
    is_compared = subject.drops_values or not subject.light
    if not is_compared or not session.ledger.unrefuted() or session.ledger.is_late():
        return
    _examine_randomness(subject, session)
    if not subject.light:
        _examine_over_time(subject, session)
    session.ledger.save()


def _examine_randomness(subject: Subject, session: Session) -> None:
    """Compare every recorded definition in training with dropout on, in float32 with the first
    seed, innermost first; refute definitions that differ, revert these and start again. Stop where
    a model cannot be built."""
    compared_calls: set[tuple[str, str]] = set()
    while session.ledger.unrefuted():
        pair = make_pair(subject, SEEDS[0], session)
        if pair is None:
            return
        setting = Setting(subject, pair, SEEDS[0], "float32", True)
        with pair.mode(True, weights.RATE):
            recorder = record_calls(setting, session)
            entries = sorted(
                recorder.calls if recorder is not None else (), key=depth, reverse=True
            )
            if all(
                _compare_with_dropout(entry, compared_calls, setting, session) for entry in entries
            ):
                return
        revert(session, session.ledger.refuted())


def _compare_with_dropout(
    entry: Recorded, compared_calls: set[tuple[str, str]], setting: Setting, session: Session
) -> bool:
    """Compare a recorded call with dropout on, and, where `session.beyond` is set, with other rates
    of dropout among its arguments; refute its definition by the first difference, and add to
    `record.dropout` the way that the comparison was made.

    Return False once the definition is refuted here, because modules that hold an instance of it
    have to be built anew; else True. A call is skipped where its definition, path and shapes are in
    `compared_calls`, to which they are added otherwise, where its definition is refuted, or where
    the changed version has no counterpart.
    """
    record = session.ledger.records[entry.definition]
    key = entry.definition, f"{entry.path} {call_arguments.shapes(entry.call)}"
    if key in compared_calls or record.refuted or not has_counterpart(entry, setting, session):
        return True
    compared_calls.add(key)
    sides = sides_of(entry, setting, session)
    values = domain_of(entry.definition, session).constants.values if session.beyond else ()
    for call in (
        replace(entry.call, label="dropout"),
        *calls_with_rates_around(entry.call, sides.original.callable, values),
    ):
        with session.trace_changed(entry.definition, call.label):
            difference, way = compare_random(
                sides.original, sides.changed, call, record.largest, session.judge
            )
        if difference or call.label == "dropout":
            record.dropout.add(way)
        if difference:
            recipe = describe_failure(
                setting.subject, setting.seed, setting, (entry, call), difference
            )
            session.ledger.refute(
                entry.definition, sentence_with_place(entry, call, setting, difference), recipe
            )
            return False
    return True


def _examine_over_time(subject: Subject, session: Session) -> None:
    """Compare the behaviour of a subject over time: over optimizer steps, in copies and pickles,
    then in captured graphs.

    A difference refutes the definitions to blame, which are then reverted; an agreement is noted in
    `also_compared` of the records whose definitions the subject ran. Stop where a model cannot be
    built or every definition is refuted.
    """
    for check in (compare_training, compare_copies):
        first_pair = make_pair(subject, SEEDS[0], session)
        if first_pair is None or not session.ledger.unrefuted():
            return

        def repeat_check(check: CheckOverTime = check) -> Difference | None:
            """Return the difference that `check` shows on a new pair, or that building the pair
            shows, or None."""
            pair = build_both(subject, SEEDS[0], session)
            return (
                check(subject, pair, session)[0] if isinstance(pair, Pair) else as_difference(pair)
            )

        difference, agreement = check(subject, first_pair, session)
        for name in blame(session, repeat_check) if difference else ():
            recipe = (
                describe_failure(subject, SEEDS[0], None, None, difference) if difference else {}
            )
            session.ledger.refute(
                name, f"{difference.sentence} ({subject.name})" if difference else "", recipe
            )
        for record in session.ledger.records.values():
            if agreement and subject.name in record.models:
                record.also_compared.add(agreement)
        revert(session, session.ledger.refuted())
    _examine_capture(subject, session)


def _examine_capture(subject: Subject, session: Session) -> None:
    """Run the first recorded call of each unrefuted definition without data, capture, script and
    trace it in both versions, in evaluation and float32; refute a definition by the first
    difference. Functions without tensors are left out.

    Records get what agreed (`also_compared`), what only the original could do without being wrong
    in the changed version (`losses`), and `captured`, by which a definition is examined once only.
    """
    pair = make_pair(subject, SEEDS[0], session)
    if pair is None or not session.ledger.unrefuted():
        return
    setting = Setting(subject, pair, SEEDS[0], "float32", False)
    with pair.mode(False, weights.RATE):
        recorder = record_calls(setting, session)
        for entry in recorder.calls if recorder is not None else ():
            record = session.ledger.records[entry.definition]
            is_done = record.refuted or record.captured or entry.plain
            if is_done or not has_counterpart(entry, setting, session):
                continue
            record.captured = True
            sides = sides_of(entry, setting, session)
            difference = None
            for compare in (compare_placement, compare_captures):
                if not difference:
                    difference, agreements = compare(
                        sides.original, sides.changed, entry.call, entry.definition, session.ledger
                    )
                    record.also_compared.update(agreements)
            if not difference:
                transformed = compare_transformed(
                    sides.original, sides.changed, entry.call, entry.definition, session.ledger
                )
                record.also_compared.update(transformed.agreeing)
                record.losses.update(transformed.losses)
                difference = transformed.difference
            if difference:
                call = replace(entry.call, label=AS_RECORDED)
                recipe = describe_failure(subject, setting.seed, setting, (entry, call), difference)
                session.ledger.refute(
                    entry.definition, sentence_with_place(entry, call, setting, difference), recipe
                )
