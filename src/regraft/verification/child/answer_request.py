"""Answer a request for a verification in the child: import both versions, bring them to life,
compare them, and write the result."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from regraft.verification.child import cuda_calls
from regraft.verification.child.beyond_single_calls import examine_beyond_calls
from regraft.verification.child.checks.comparison_domain import late_attributes
from regraft.verification.child.checks.condition_coverage import Conditions
from regraft.verification.child.checks.declaration_comparison import is_bound_to_own_class
from regraft.verification.child.checks.mutants import Mutants
from regraft.verification.child.checks.replaced_functions import FunctionsSnapshot
from regraft.verification.child.checks.tensor_equivalence import definitions_equal_for_tensors
from regraft.verification.child.checks.whole_models import subjects_beyond
from regraft.verification.child.drivers import user_driver
from regraft.verification.child.drivers.driver_protocol import Subject, Task, yield_until_error
from regraft.verification.child.error_text import shorten_error
from regraft.verification.child.file_import import load_changed, load_original, package_of
from regraft.verification.child.judge_process import Judge
from regraft.verification.child.ledger import Ledger
from regraft.verification.child.line_tracing import Tracer, stop_tracing_kernels
from regraft.verification.child.missing_modules import missing_modules
from regraft.verification.child.package_stand_ins import left_out_packages
from regraft.verification.child.read_files import start_noting_reads
from regraft.verification.child.request_drivers import (
    drivers_for,
    inferring_drivers,
    load_driver,
    make_own_driver,
    subjects_of,
)
from regraft.verification.child.request_evidence import save_evidence
from regraft.verification.child.script_import import script_of
from regraft.verification.child.session import Session
from regraft.verification.child.static_comparisons import (
    compare_signatures,
    compare_variables,
    refute_excluded,
    refute_replaced_functions,
)
from regraft.verification.child.subject_comparison import examine, examine_in_steps
from regraft.verification.definition_changes import Change

# of processor time, after which a subject waits for others while a change was not compared at all
TURN_SECONDS = 30.0
# the packages that have another name than the module that they install
_DISTRIBUTIONS = {
    "absl": "absl-py",
    "cv2": "opencv-python-headless",
    "PIL": "Pillow",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
}


def run(folder: Path, request: Mapping[str, Any]) -> None:
    """Answer a request while there is time: import both versions, compare them on the subjects of
    the drivers, and write the result to `folder`/result.json, also after each subject. What cannot
    be imported is the "fatal" entry of the result.

    `request` has the entries that `_Job._write_request` (`parent_process`) writes; "seconds" are of
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
    session = _start_session(request, changes, ledger)
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


def _start_session(
    request: Mapping[str, Any], changes: tuple[Change, ...], ledger: Ledger
) -> Session | None:
    """Import both versions, set up their session by the request, and refute what differs right
    after the import: replaced functions of PyTorch or Python, signatures, and variables of the file
    under the strict contract. Return None, with the reason in the ledger, where a version does not
    import."""
    source = Path(request["changed"])
    tracer = Tracer(str(source), changes)
    stop_tracing_kernels((str(source), request["original"]))
    old_changes = tuple(Change.from_json(entry) for entry in request["before"])
    if request["by rules"]:  # which move no tensors to other devices
        cuda_calls.keep_on_cpu(Path(request["original"]).read_bytes(), source.read_bytes())
    functions, judge = FunctionsSnapshot(), Judge()
    try:
        with ledger.step("original", "", "import"):
            original = load_original(Path(request["original"]))
    except BaseException as error:  # noqa: BLE001 - any import failure, SystemExit included; it is the reason
        ledger.fatal = {
            "what": "original",
            "reason": f"the original does not import: {shorten_error(error)}{_advice_for(error)}",
        }
        return None
    replaced_by_original = functions.replaced_names()
    try:
        with ledger.step("changed", "", "import"), tracer:
            changed = load_changed(source, Path(request["original"]), original)
    except BaseException as error:  # noqa: BLE001 - any import failure, SystemExit included; it is the finding
        ledger.fatal = {
            "what": "changed",
            "reason": f"the changed version does not import: {shorten_error(error)}",
        }
        return None
    ledger.note_level("imports")
    # functions that run during the import are no evidence of a relative's run
    tracer.entered.clear()
    session = Session.start(original, changed, changes, tracer, ledger, judge, functions)
    session.original_tracer = Tracer(
        str(original.__file__),
        tuple(old_change for old_change in old_changes if old_change.kind in ("class", "function")),
    )
    session.original_tracer.mark_imported(
        compile(Path(request["original"]).read_bytes(), "", "exec", dont_inherit=True)
    )
    session.replaced = replaced_by_original
    _note_import(session)
    undecided = request["same if returned"]
    ledger.returned_classes = frozenset(
        name for name in undecided if is_bound_to_own_class(name, (original, changed))
    )
    is_same = request["same"] and ledger.returned_classes.issuperset(undecided)
    session.compares_once = is_same or request["confirms"]
    session.beyond = request["effort"] != "low" and not session.compares_once
    session.thorough = request["effort"] == "high"
    session.strict = request["contract"] == "strict"
    session.by_rules = request["by rules"]
    session.model_classes = frozenset(request["model classes"])
    if session.beyond:
        _watch_changed_lines(session)
    refute_replaced_functions(session, functions.replaced_names())
    compare_signatures(session)
    if session.strict:
        compare_variables(session, Path(request["original"]))
    return session


def _note_import(session: Session) -> None:
    """Note in the domains of all definitions what was left out of a file that was imported in part
    and of the packages around it, and the modules that are missing."""
    packages = left_out_packages(session.original.__name__)
    left_out = {f"without {description}" for description in packages.values()}
    left_out |= {f"without the module {name}, which is missing" for name in missing_modules()}
    script = script_of(session.original)
    if script is not None:
        left_out.add(script.summary)
    if left_out:
        for record in session.ledger.records.values():
            record.domain.setdefault("import", set()).update(left_out)


def _watch_changed_lines(session: Session) -> None:
    """Set the conditions and mutants of a session, which tell what its inputs decide: conditions of
    the changed lines of both versions and mutants of the changed version, for a change by hand also
    those of numbers that only the original has, and, without model classes, reads of attributes
    that are assigned late."""
    original, changed, by_hand = session.original, session.changed, not session.by_rules
    changes, old_changes = session.changes, session.original_tracer.changes
    late = late_attributes(session) if by_hand and not session.model_classes else {}
    # a function of PyTorch that the file replaces need not be the method that has its name
    has_identities = by_hand and not session.replaced
    equal = (
        definitions_equal_for_tensors(changes, original, changed) if has_identities else frozenset()
    )
    prepare = partial(Conditions, late=late, by_hand=by_hand, equal_for_tensors=equal)
    session.conditions = (
        prepare(changed, changes, original),
        prepare(original, old_changes, changed),
    )
    avoided = session.ledger.avoided
    session.mutants = Mutants(changed, original, changes, avoided, thorough=session.thorough)
    if by_hand:
        session.old_mutants = Mutants(
            original, changed, old_changes, avoided, only_new_numbers=True
        )


def _advice_for(error: BaseException) -> str:
    """Return ": install PACKAGE, or ..." for the error that a package is missing; "" for other
    errors."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    module = error.name.partition(".")[0]
    package = _DISTRIBUTIONS.get(module, module)
    return f": install {package}, or name an interpreter that has it (--python)"
