"""The child's one straight line: import both versions, bring them to life, compare, report."""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from regraft.source.object_reference import find_function
from regraft.verify.changes import Change
from regraft.verify.child.checks.conditions import Conditions
from regraft.verify.child.checks.declarations import is_returned, undecided_declarations
from regraft.verify.child.checks.mutants import Mutants
from regraft.verify.child.checks.options import options_with_one_value
from regraft.verify.child.checks.surroundings import reads_of_surroundings
from regraft.verify.child.checks.tampering import Functions
from regraft.verify.child.checks.whole import subjects_beyond
from regraft.verify.child.compare import unlike
from regraft.verify.child.contract import signature_difference
from regraft.verify.child.drivers import huggingface, inference, methods, user
from regraft.verify.child.drivers.base import Subject, guarded
from regraft.verify.child.examine import examine
from regraft.verify.child.isolated import Judge
from regraft.verify.child.later import examine_later
from regraft.verify.child.ledger import Ledger
from regraft.verify.child.load import load_again, load_changed, load_original
from regraft.verify.child.session import Session
from regraft.verify.child.state import variables
from regraft.verify.child.trace import Tracer, leave_kernels_out
from regraft.verify.types import MODULE


def run(folder: Path, request: Mapping[str, Any]) -> None:
    """Answer a request; the result is written to `folder`/result.json."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    changes = tuple(Change.from_json(entry) for entry in request["changes"])
    names = tuple(change.definition for change in changes)
    deadline = time.process_time() + float(request["seconds"])
    clock = time.monotonic() + float(request["clock"])
    ledger = Ledger(folder, names, deadline, clock, frozenset(request["avoided"]))
    session = _load(request, changes, ledger)
    if session is not None:
        _exclude(session, request["excluded"])
        factory = _factory(request, ledger)
        if ledger.fatal:
            ledger.save()
            return
        for subject in _subjects(session, request, factory):
            if session.same:
                examine(replace(subject, light=True), session, brief=True)
                _note(session)
                if all(map(session.reached, changes)):
                    break
                continue
            examine(subject, session)
            beyond = subjects_beyond(subject, session) if session.beyond else iter(())
            for other in guarded(beyond, ledger, f"{subject.name} under other conditions"):
                examine(other, session)
            examine_later(subject, session)
            _refuse_replaced(session, session.functions.replaced(session.changed.__name__))
            _note(session)
            if session.done():
                break
        _note(session)
        if session.ledger.late():
            ledger.skip("the time limit left no room for more models")
    ledger.save()


def _note(session: Session) -> None:
    """Save what the comparisons so far cover; what ends this process later takes nothing away from that."""
    ledger, changes = session.ledger, session.changes
    ledger.gaps = {change.definition: list(session.tracer.gaps(change)) for change in changes}
    ledger.gaps_before = {change.definition: list(session.gaps_before(change)) for change in changes}
    ledger.strangers = {change.definition: list(session.strangers(change)) for change in changes}
    if session.mutants is not None:
        for change in changes:
            ledger.records[change.definition].mutants = session.mutants.score(change.definition)
    if session.beyond:
        ledger.uncontrolled = {change.definition: list(_uncontrolled(change, session)) for change in changes}
    ledger.implementations = session.tracer.kernels
    ledger.constant_fields = {
        change.definition: list(options_with_one_value(change.definition, session))
        for change in changes
        if session.beyond
    }
    if not ledger.late():  # the last comparisons were not cut short
        missing = session.missing()
        ledger.complete |= {change.definition for change in changes if change not in missing}
    ledger.save()


def _uncontrolled(change: Change, session: Session) -> Iterator[str]:
    """Yield what of a change no input has decided: conditions with one result, declarations, reads of the process."""
    yield from session.condition_gaps(change.definition)
    yield from undecided_declarations(change, session.changed, session.original)
    yield from reads_of_surroundings(change, session.changed, session.original)


def _load(request: Mapping[str, Any], changes: tuple[Change, ...], ledger: Ledger) -> Session | None:
    source = Path(request["changed"])
    tracer = Tracer(str(source), changes)
    leave_kernels_out((str(source), request["original"]))
    before = tuple(Change.from_json(entry) for entry in request["before"])
    functions, judge = Functions(), Judge()
    try:
        with ledger.step("original", "", "import"):
            original = load_original(Path(request["original"]))
    except BaseException as error:  # noqa: BLE001 - any import failure, SystemExit included; it is the reason
        ledger.fatal = {"what": "original", "reason": f"the original does not import: {_brief(error)}"}
        return None
    own = functions.replaced()
    try:
        with ledger.step("changed", "", "import"), tracer:
            changed = load_changed(source, Path(request["original"]))
    except BaseException as error:  # noqa: BLE001 - any import failure, SystemExit included; it is the finding
        ledger.fatal = {"what": "changed", "reason": f"the changed version does not import: {_brief(error)}"}
        return None
    ledger.reach("imports")
    tracer.entered.clear()  # functions that run during the import bring nothing to life
    session = Session.start(original, changed, changes, tracer, ledger, judge)
    session.older = Tracer(str(original.__file__), tuple(one for one in before if one.kind in ("class", "function")))
    session.older.imported(compile(Path(request["original"]).read_bytes(), "", "exec", dont_inherit=True))
    session.functions, session.replaced = functions, own
    unsure = request["same if returned"]
    ledger.returned_classes = frozenset(name for name in unsure if is_returned(name, (original, changed)))
    session.same = request["same"] and ledger.returned_classes.issuperset(unsure)
    session.beyond = request["effort"] != "low" and not session.same
    session.thorough = request["effort"] == "high"
    session.strict = request["contract"] == "strict"
    if session.beyond:
        session.conditions = (
            Conditions(changed, changes, original), Conditions(original, session.older.changes, changed)
        )  # fmt: skip
        session.mutants = Mutants(changed, changes, ledger.avoided, thorough=session.thorough)
    _refuse_replaced(session, functions.replaced())
    _compare_signatures(session)
    if session.strict:
        _compare_variables(session, Path(request["original"]))
    return session


def _refuse_replaced(session: Session, replaced: frozenset[str]) -> None:
    """Refute a changed version that replaces functions of PyTorch or Python which the original leaves alone."""
    names = sorted(replaced - session.replaced)
    if names:
        for definition in session.ledger.open():
            session.ledger.refute(definition, f"the changed version replaces {', '.join(names[:3])}", {})


def _compare_signatures(session: Session) -> None:
    """Refute definitions that take other arguments, or have lost a method."""
    for name in session.ledger.open():
        found = signature_difference(getattr(session.original, name, None), getattr(session.changed, name, None))
        if found:
            session.ledger.refute(name, found, {})


def _compare_variables(session: Session, path: Path) -> None:
    """Refute what leaves the file's variables with other values; those that each import makes anew do not count."""
    wrong = unlike(variables(session.original), variables(session.changed))
    if not wrong:
        return
    try:
        with session.ledger.step("original", "", "import again"):
            again = load_again(path)
    except BaseException as error:  # noqa: BLE001 - any import failure, SystemExit included; recorded as the reason
        session.ledger.skip(f"variables of the file were not compared: {_brief(error)}")
        return
    chance = unlike(variables(session.original), variables(again))
    found = next((sentence for name, sentence in wrong.items() if name not in chance), "")
    names = session.ledger.open()
    for name in (MODULE,) if MODULE in names else names:
        if found:
            session.ledger.refute(name, f"after import {found}", {})


def _brief(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _exclude(session: Session, excluded: list[str]) -> None:
    """Leave out definitions that an earlier child died of."""
    for name in excluded:
        session.ledger.refute(name, "excluded", {})
    session.restore(tuple(excluded))


def _factory(request: Mapping[str, Any], ledger: Ledger) -> user.Factory | None:
    if not request["driver"]:
        return None
    try:
        return find_function(request["driver"], request["folder"])
    except Exception as error:  # noqa: BLE001 - importing the caller's file; reported to the caller
        ledger.fatal = {"what": "driver", "reason": f"the driver cannot be loaded: {_brief(error)}"}
        return None


def _models(session: Session, request: Mapping[str, Any], factory: user.Factory | None) -> Iterator[Subject]:
    original: ModuleType = session.original
    source = Path(request["original"]).read_text(encoding="utf-8", errors="replace")
    configs: list[Any] = []
    if factory is not None:
        made = user.subjects(request["driver"], request["folder"], factory, session)
        yield from guarded(made, session.ledger, "the user driver")
    elif importlib.util.find_spec("transformers") and huggingface.applies(original):
        derived = huggingface.subjects(session, request["text"], source, configs)
        yield from guarded(derived, session.ledger, "the huggingface driver")
    if not session.done():
        guessed = inference.subjects(session, request["text"], source, configs)
        yield from guarded(guessed, session.ledger, "the inference driver")


def _subjects(session: Session, request: Mapping[str, Any], factory: user.Factory | None) -> Iterator[Subject]:
    """Models by their `forward`, each with what it does beside that."""
    tried: Counter[tuple[str, str]] = Counter()
    for subject in _models(session, request, factory):
        yield subject
        if not subject.light:
            beside = methods.subjects(subject, session, request["text"], tried)
            yield from guarded(beside, session.ledger, "the driver of methods")
