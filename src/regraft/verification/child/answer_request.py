"""Answer a request for a verification in the child: import both versions, bring them to life,
compare them, and write the result."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from regraft.source.object_reference import find_function
from regraft.verification.child import cuda_calls
from regraft.verification.child.beyond_single_calls import examine_beyond_calls
from regraft.verification.child.checks.argument_combinations import sets_read_together
from regraft.verification.child.checks.attribute_variants import ATTRIBUTES
from regraft.verification.child.checks.comparison_domain import (
    domain_of,
    late_attributes,
    reads_of_arguments,
)
from regraft.verification.child.checks.condition_coverage import Conditions
from regraft.verification.child.checks.declaration_comparison import (
    is_bound_to_own_class,
    undecided_declarations,
)
from regraft.verification.child.checks.left_out_statements import reads_of_left_out
from regraft.verification.child.checks.mutants import Mutants
from regraft.verification.child.checks.options_read import unvaried_options
from regraft.verification.child.checks.process_reads import new_process_reads
from regraft.verification.child.checks.replaced_functions import FunctionsSnapshot
from regraft.verification.child.checks.tensor_equivalence import definitions_equal_for_tensors
from regraft.verification.child.checks.whole_models import subjects_beyond
from regraft.verification.child.drivers import (
    guessing_driver,
    huggingface_driver,
    methods_driver,
    user_driver,
)
from regraft.verification.child.drivers.driver_protocol import (
    Driver,
    Subject,
    Task,
    yield_until_error,
)
from regraft.verification.child.error_text import shorten_error
from regraft.verification.child.file_import import load_changed, load_copy, load_original
from regraft.verification.child.judge_process import Judge
from regraft.verification.child.ledger import Ledger
from regraft.verification.child.line_tracing import Tracer, stop_tracing_kernels
from regraft.verification.child.result_comparison import describe_differences
from regraft.verification.child.script_import import script_of
from regraft.verification.child.session import Session
from regraft.verification.child.signature_comparison import signature_difference
from regraft.verification.child.state_watch import variable_leaves
from regraft.verification.child.subject_comparison import examine
from regraft.verification.definition_changes import Change
from regraft.verification.types import MODULE


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
    ledger = Ledger(folder, names, deadline, clock, frozenset(request["avoided"]))
    session = _start_session(request, changes, ledger)
    if session is not None:
        _refute_excluded(session, request["excluded"])
        factory = _load_driver(request, ledger)
        if ledger.fatal:
            ledger.save()
            return
        text = Path(request["original"]).read_text(encoding="utf-8", errors="replace")
        task = Task(session, request["text"], text)
        own_driver = _own_driver(request, factory)
        if own_driver is not None and session.model_classes and session.beyond:
            _examine_slow_model(own_driver, task)
        if not session.is_finished():
            _examine_subjects(_subjects(_drivers(request, own_driver), task), session)
        _save_evidence(session)
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
        _examine_subjects(_subjects(_inferring_drivers(), task), task.session)
        examine(slow_subject, task.session, brief=True)
        ledger.is_own_model_pending = ledger.is_late()


def _examine_subjects(subjects: Iterator[Subject], session: Session) -> None:
    """Compare both versions on each subject, and on subjects like it under other conditions, until
    no change and no relative needs a run; save what the evidence lacks after each. Where the
    session compares once (`compares_once`), each subject is compared briefly, until every change is
    compared; other conditions are left out unless `session.beyond` is set."""
    for subject in subjects:
        if session.compares_once:
            examine(replace(subject, light=True, slow=True), session, brief=True)
            _save_evidence(session)
            if all(map(session.is_compared, session.changes)):
                break
            continue
        examine(subject, session)
        further_subjects = subjects_beyond(subject, session) if session.beyond else iter(())
        for further_subject in yield_until_error(
            further_subjects, session.ledger, f"{subject.name} under other conditions"
        ):
            examine(further_subject, session)
            examine_beyond_calls(further_subject, session)
        examine_beyond_calls(subject, session)
        _refute_replaced_functions(
            session, session.functions.replaced_names(session.changed.__name__)
        )
        _save_evidence(session)
        if session.is_finished():
            break


def _save_evidence(session: Session) -> None:
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
    result, an attribute with only one value, a declaration, a read of the process, a new number
    that could be another, or a variable that statements left out of the import may set. Attributes
    are left out where the session has model classes."""
    yield from session.condition_gaps(change.definition)
    labels = session.ledger.records[change.definition].domain.get(ATTRIBUTES, set())
    late = domain_of(change.definition, session).late
    if not session.model_classes:
        yield from session.late.unvaried(change.definition, late, labels, by_rules=session.by_rules)
    yield from _arguments_not_combined(change.definition, session)
    yield from undecided_declarations(change, session.changed, session.original)
    yield from new_process_reads(change, session.changed, session.original)
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
    _note_script(session)
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
    _refute_replaced_functions(session, functions.replaced_names())
    _compare_signatures(session)
    if session.strict:
        _compare_variables(session, Path(request["original"]))
    return session


def _note_script(session: Session) -> None:
    """Note in the domains of all definitions what was left out of a file that was imported in
    part."""
    script = script_of(session.original)
    if script is not None:
        for record in session.ledger.records.values():
            record.domain.setdefault("import", set()).add(script.summary)


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
    prepare = partial(Conditions, late=late, sees_dimensions=by_hand, equal_for_tensors=equal)
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


def _refute_replaced_functions(session: Session, replaced: frozenset[str]) -> None:
    """Refute all definitions where the changed version replaces functions of PyTorch or Python
    which the original leaves alone; the reason names the first three."""
    names = sorted(replaced - session.replaced)
    if names:
        for definition in session.ledger.unrefuted():
            session.ledger.refute(
                definition, f"the changed version replaces {', '.join(names[:3])}", {}
            )


def _compare_signatures(session: Session) -> None:
    """Refute each definition whose calls no longer fit, because parameters changed or a method is
    gone."""
    for name in session.ledger.unrefuted():
        sentence = signature_difference(
            getattr(session.original, name, None), getattr(session.changed, name, None)
        )
        if sentence:
            session.ledger.refute(name, sentence, {})


def _compare_variables(session: Session, path: Path) -> None:
    """Refute the module level if it is a change, else every definition, where the import leaves a
    variable of the file with another value; the reason is the first such variable.

    Values that differ at each import do not count. The original is imported again to find these;
    where that fails, nothing is compared and the reason noted in the ledger.
    """
    differences = describe_differences(
        variable_leaves(session.original), variable_leaves(session.changed)
    )
    if not differences:
        return
    try:
        with session.ledger.step("original", "", "import again"):
            second_import = load_copy(path, session.original)
    except BaseException as error:  # noqa: BLE001 - any import failure, SystemExit included; recorded as the reason
        session.ledger.skip(f"variables of the file were not compared: {shorten_error(error)}")
        return
    random_differences = describe_differences(
        variable_leaves(session.original), variable_leaves(second_import)
    )
    sentence = next(
        (sentence for name, sentence in differences.items() if name not in random_differences), ""
    )
    names = session.ledger.unrefuted()
    for name in (MODULE,) if MODULE in names else names:
        if sentence:
            session.ledger.refute(name, f"after import {sentence}", {})


def _advice_for(error: BaseException) -> str:
    """Return ": install PACKAGE, or ..." for the error that a package is missing; "" for other
    errors."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    package = error.name.partition(".")[0]
    return f": install {package}, or name an interpreter that has it (--python)"


def _refute_excluded(session: Session, excluded: list[str]) -> None:
    """Refute the definitions that ended an earlier child, with the reason "excluded", and revert
    them."""
    for name in excluded:
        session.ledger.refute(name, "excluded", {})
    session.revert(tuple(excluded))


def _load_driver(request: Mapping[str, Any], ledger: Ledger) -> user_driver.Factory | None:
    """Return the user's driver function; None where the request has none, or where it cannot be
    loaded, which is then the fatal error "driver" in the ledger."""
    if not request["driver"]:
        return None
    try:
        return find_function(request["driver"], request["folder"])
    except Exception as error:  # noqa: BLE001 - importing the caller's file; reported to the caller
        ledger.fatal = {
            "what": "driver",
            "reason": f"the driver cannot be loaded: {shorten_error(error)}",
        }
        return None


def _own_driver(
    request: Mapping[str, Any], factory: user_driver.Factory | None
) -> user_driver.UserDriver | None:
    """Return the driver that calls the user's function; None where there is none."""
    if factory is None:
        return None
    return user_driver.UserDriver(request["driver"], request["folder"], factory)


def _inferring_drivers() -> tuple[Driver, ...]:
    """Return the drivers that build models of their own, in order: that for Hugging Face, then the
    one that infers values."""
    return huggingface_driver.HuggingFaceDriver(), guessing_driver.GuessingDriver()


def _drivers(
    request: Mapping[str, Any], own_driver: user_driver.UserDriver | None
) -> tuple[Driver, ...]:
    """Return the drivers that are asked for models, in order: the user's own, then the one that
    infers values; for a change of one model its own alone, and without the user's all builders."""
    if own_driver is None:
        return _inferring_drivers()
    is_for_model = bool(request["model classes"])
    return (own_driver,) if is_for_model else (own_driver, guessing_driver.GuessingDriver())


def _models(drivers: tuple[Driver, ...], task: Task) -> Iterator[Subject]:
    """Yield the models of each driver that applies to the file, in order, until no change and no
    relative needs a run; an error of a driver ends its models and is noted in the ledger."""
    for driver in drivers:
        if driver.applies(task):
            subjects = driver.subjects(task)
            yield from yield_until_error(subjects, task.session.ledger, f"the {driver.name} driver")
        if task.session.is_finished():
            return


def _subjects(drivers: tuple[Driver, ...], task: Task) -> Iterator[Subject]:
    """Yield the models that the drivers build, each followed by subjects that call its changed
    methods other than `forward`."""
    tried: Counter[tuple[str, str]] = Counter()
    for subject in _models(drivers, task):
        yield subject
        driver = methods_driver.MethodsDriver(subject, tried)
        if driver.applies(task):
            yield from yield_until_error(
                driver.subjects(task), task.session.ledger, "the driver of methods"
            )
