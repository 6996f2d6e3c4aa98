"""Answer a request for a verification in the child: import both versions, bring them to life,
compare them, and write the result."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from regraft.verification.child.beyond_single_calls import examine_beyond_calls
from regraft.verification.child.checks.whole_models import subjects_beyond
from regraft.verification.child.drivers import user_driver
from regraft.verification.child.drivers.driver_protocol import Subject, Task, yield_until_error
from regraft.verification.child.evidence_record import Ledger
from regraft.verification.child.file_import import package_of
from regraft.verification.child.read_files import start_noting_reads
from regraft.verification.child.request_drivers import (
    drivers_for,
    inferring_drivers,
    load_driver,
    make_own_driver,
    subjects_of,
)
from regraft.verification.child.request_evidence import save_evidence
from regraft.verification.child.session import Session
from regraft.verification.child.session_start import start_session
from regraft.verification.child.static_comparisons import refute_excluded, refute_replaced_functions
from regraft.verification.child.subject_comparison import examine, examine_in_steps
from regraft.verification.definition_changes import Change

# of processor time, after which a subject waits for others while a change was not compared at all
TURN_SECONDS = 30.0


def run(folder: Path, request: Mapping[str, Any]) -> None:
    """Answer a request while there is time: import both versions, compare them on the subjects of
    the drivers, and write the result to `folder`/result.json, also after each subject. What cannot
    be imported is the "fatal" entry of the result.

    `request` has the entries that `Job._write_request` (`child_job`) writes; "seconds" are of
    CPU time, "clock" is in seconds of elapsed time. A single comparison of each change is enough
    for versions that are the same program, and for changes that were proved before.
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    changes = tuple(Change.from_json(entry) for entry in request["changes"])
    names = tuple(change.definition for change in changes)
    deadline = time.process_time() + float(request["seconds"])
    clock = time.monotonic() + float(request["clock"])
    start_noting_reads()
    package = package_of(Path(request["original"]))[1].partition(".")[0]
    ledger = Ledger(folder, names, deadline, clock, frozenset(request["avoided"]), package)
    session = start_session(request, changes, ledger)
    if session is not None:
        refute_excluded(session, request["excluded"])
        factory = load_driver(request, ledger)
        if ledger.fatal:
            ledger.save()
            return
        text = Path(request["original"]).read_text(encoding="utf-8", errors="replace")
        task = Task(session, request["text"], text)
        own_driver = make_own_driver(request, factory)
        if own_driver is not None and session.model_classes and session.beyond:
            _examine_slow_model(own_driver, task)
        if not session.is_finished():
            _examine_subjects(subjects_of(drivers_for(request, own_driver), task), session)
        save_evidence(session)
        if session.ledger.is_late():
            ledger.skip("the time limit left no room for more models")
    ledger.save()


def _examine_slow_model(own_driver: user_driver.UserDriver, task: Task) -> None:
    """Compare both versions on small models of the file's classes, and in a few runs on the user's
    model, if a call of that model takes too long for a proof; else do nothing.

    The ledger names the user's model, and no change is complete before the runs on it are over.
    """
    slow_subject, ledger = own_driver.slow_subject(task), task.session.ledger
    if slow_subject is not None:
        ledger.own_model, ledger.is_own_model_pending = slow_subject.name, True
        _examine_subjects(subjects_of(inferring_drivers(), task), task.session)
        examine(slow_subject, task.session, brief=True)
        ledger.is_own_model_pending = ledger.is_late()


def _examine_subjects(subjects: Iterator[Subject], session: Session) -> None:
    """Compare both versions on each subject, and on subjects like it under other conditions, until
    no change and no relative needs a run; save what the evidence lacks after each. Where the
    session compares once (`compares_once`), each subject is compared briefly, until every change is
    compared.

    A subject that takes long (`TURN_SECONDS`) waits with the rest of its comparisons while a change
    was not compared at all; the rest follows when no further subject is left or needed.
    """
    waiting: list[Iterator[None]] = []
    for subject in subjects:
        if session.compares_once:
            examine(replace(subject, light=True, slow=True), session, brief=True)
            save_evidence(session)
            if all(map(session.is_compared, session.changes)):
                break
            continue
        steps = _examination_steps(subject, session)
        if not _take_turn(steps, session):
            waiting.append(steps)
        if session.is_finished():
            break
    for steps in waiting:
        for _ in steps:
            pass


def _take_turn(steps: Iterator[None], session: Session) -> bool:
    """Take the steps of an examination; return False, with steps left, where they have taken
    `TURN_SECONDS` of processor time while a change was not compared at all."""
    started = time.process_time()
    for _ in steps:
        is_long = time.process_time() - started > TURN_SECONDS
        if is_long and not all(map(session.is_compared, session.uncovered_changes())):
            return False
    return True


def _examination_steps(subject: Subject, session: Session) -> Iterator[None]:
    """Compare both versions on a subject, and on subjects like it under other conditions where
    `session.beyond` is set, and yield after each setting of the first and after each of the others;
    save what the evidence lacks at the end."""
    yield from examine_in_steps(subject, session)
    further_subjects = subjects_beyond(subject, session) if session.beyond else iter(())
    for further_subject in yield_until_error(
        further_subjects, session.ledger, f"{subject.name} under other conditions"
    ):
        examine(further_subject, session)
        examine_beyond_calls(further_subject, session)
        yield
    examine_beyond_calls(subject, session)
    refute_replaced_functions(session, session.functions.replaced_names(session.changed.__name__))
    save_evidence(session)
