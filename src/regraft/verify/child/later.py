"""What is compared once the single calls agree: chance, training, copies, captured graphs, scripts and traces."""

from __future__ import annotations

from dataclasses import replace

from regraft.verify.child import tree, weights
from regraft.verify.child.capture import captured
from regraft.verify.child.checks.arguments import rates_around
from regraft.verify.child.checks.domain import domain_of
from regraft.verify.child.compare import Difference
from regraft.verify.child.drivers.base import Subject
from regraft.verify.child.failure import describe
from regraft.verify.child.lasting import Lasting, copied, trained
from regraft.verify.child.pair import Pair, build
from regraft.verify.child.record import Recorded
from regraft.verify.child.runs import sides_of
from regraft.verify.child.session import Session
from regraft.verify.child.setting import (
    SEEDS,
    Setting,
    as_difference,
    depth,
    has_counterpart,
    make_pair,
    record_calls,
    where,
)
from regraft.verify.child.stochastic import compare_random
from regraft.verify.child.transforms import compare_transformed
from regraft.verify.child.variants import AS_RECORDED


def examine_later(subject: Subject, session: Session) -> None:
    """Compare what single calls do not show, for definitions that are not refuted by then."""
    if subject.light or not session.ledger.open() or session.ledger.late():
        return
    _examine_randomness(subject, session)
    _examine_lasting(subject, session)
    session.ledger.save()


def _examine_randomness(subject: Subject, session: Session) -> None:
    """Compare every recorded definition in training with dropout on, innermost first."""
    done: set[tuple[str, str]] = set()
    while session.ledger.open():
        pair = make_pair(subject, SEEDS[0], session)
        if pair is None:
            return
        setting = Setting(subject, pair, SEEDS[0], "float32", True)
        with pair.mode(True, weights.RATE):
            recorder = record_calls(setting, session)
            entries = sorted(recorder.found if recorder is not None else (), key=depth, reverse=True)
            if all(_random_alike(entry, done, setting, session) for entry in entries):
                return
        session.restore(session.ledger.refuted())


def _random_alike(entry: Recorded, done: set[tuple[str, str]], setting: Setting, session: Session) -> bool:
    """Return False once a definition is refuted: what holds an instance of it has to be built anew."""
    record = session.ledger.records[entry.definition]
    key = entry.definition, f"{entry.path} {tree.shapes(entry.call)}"
    if key in done or record.refuted or not has_counterpart(entry, setting, session):
        return True
    done.add(key)
    sides = sides_of(entry, setting, session)
    values = domain_of(entry.definition, session).constants.values if session.beyond else ()
    for call in (replace(entry.call, label="dropout"), *rates_around(entry.call, sides.ours.callable, values)):
        with session.traced(entry.definition, call.label):
            found, how = compare_random(sides.ours, sides.theirs, call, record.largest, session.judge)
        if found or call.label == "dropout":
            record.dropout.add(how)
        if found:
            recipe = describe(setting.subject, setting.seed, setting, (entry, call), found)
            session.ledger.refute(entry.definition, where(entry, call, setting, found), recipe)
            return False
    return True


def _examine_lasting(subject: Subject, session: Session) -> None:
    """Compare what shows only later: over optimizer steps, in copies and pickles, in captured graphs."""
    for check in (trained, copied):
        made = make_pair(subject, SEEDS[0], session)
        if made is None or not session.ledger.open():
            return

        def compared(check: Lasting = check) -> Difference | None:
            pair = build(subject, SEEDS[0], session)
            return check(subject, pair, session)[0] if isinstance(pair, Pair) else as_difference(pair)

        found, how = check(subject, made, session)
        for name in session.blame(compared) if found else ():
            recipe = describe(subject, SEEDS[0], None, None, found) if found else {}
            session.ledger.refute(name, f"{found.sentence} ({subject.name})" if found else "", recipe)
        for record in session.ledger.records.values():
            if how and subject.name in record.models:
                record.lasting.add(how)
        session.restore(session.ledger.refuted())
    _examine_capture(subject, session)


def _examine_capture(subject: Subject, session: Session) -> None:
    pair = make_pair(subject, SEEDS[0], session)
    if pair is None or not session.ledger.open():
        return
    setting = Setting(subject, pair, SEEDS[0], "float32", False)
    with pair.mode(False, weights.RATE):
        recorder = record_calls(setting, session)
        for entry in recorder.found if recorder is not None else ():
            record = session.ledger.records[entry.definition]
            if record.refuted or record.captured or not has_counterpart(entry, setting, session):
                continue
            record.captured = True
            sides = sides_of(entry, setting, session)
            found, how = captured(sides.ours, sides.theirs, entry.call, entry.definition, session.ledger)
            record.lasting.update(how)
            if not found:
                seen = compare_transformed(sides.ours, sides.theirs, entry.call, entry.definition, session.ledger)
                record.lasting.update(seen.agreeing)
                record.losses.update(seen.losses)
                found = seen.difference
            if found:
                call = replace(entry.call, label=AS_RECORDED)
                recipe = describe(subject, setting.seed, setting, (entry, call), found)
                session.ledger.refute(entry.definition, where(entry, call, setting, found), recipe)
