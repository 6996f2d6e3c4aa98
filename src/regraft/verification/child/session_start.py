"""Import both versions and start their session, as a request wants it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from regraft.verification.child import cuda_calls
from regraft.verification.child.checks.comparison_domain import late_attributes
from regraft.verification.child.checks.condition_coverage import Conditions
from regraft.verification.child.checks.declaration_comparison import is_bound_to_own_class
from regraft.verification.child.checks.mutants import Mutants
from regraft.verification.child.checks.replaced_functions import FunctionsSnapshot
from regraft.verification.child.checks.tensor_equivalence import definitions_equal_for_tensors
from regraft.verification.child.error_text import shorten_error
from regraft.verification.child.evidence_record import Ledger
from regraft.verification.child.file_import import (
    load_changed,
    load_original,
    missing_packages,
)
from regraft.verification.child.judge_process import Judge
from regraft.verification.child.line_tracing import Tracer, stop_tracing_kernels
from regraft.verification.child.missing_modules import missing_modules, refused_modules
from regraft.verification.child.package_stand_ins import left_out_packages
from regraft.verification.child.script_import import script_of
from regraft.verification.child.session import Session
from regraft.verification.child.static_comparisons import (
    compare_signatures,
    compare_variables,
    refute_replaced_functions,
)
from regraft.verification.definition_changes import Change

# the packages that have another name than the module that they install
_DISTRIBUTIONS = {
    "absl": "absl-py",
    "cv2": "opencv-python-headless",
    "PIL": "Pillow",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
}


def start_session(
    request: Mapping[str, Any], changes: tuple[Change, ...], ledger: Ledger
) -> Session | None:
    """Import both versions, set up their session by the request, and refute what differs right
    after the import: replaced functions of PyTorch or Python, signatures, and variables of the file
    under the strict contract. Return None, with the reason in the ledger, where a version does not
    import."""
    source, original_source = Path(request["changed"]), Path(request["original"])
    tracer = Tracer(str(source), changes)
    stop_tracing_kernels((str(source), request["original"]))
    old_changes = tuple(Change.from_json(entry) for entry in request["before"])
    if request["by rules"]:  # which move no tensors to other devices
        cuda_calls.keep_on_cpu(original_source.read_bytes(), source.read_bytes())
    functions, judge = FunctionsSnapshot(), Judge()
    original = _import_original(original_source, ledger)
    if original is None:
        return None
    replaced_by_original = functions.replaced_names()
    changed = _import_changed(source, original_source, original, tracer, ledger)
    if changed is None:
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
        compile(original_source.read_bytes(), "", "exec", dont_inherit=True)
    )
    session.replaced = replaced_by_original
    _note_import(session)
    _set_terms(session, request)
    if session.beyond:
        _watch_changed_lines(session)
    refute_replaced_functions(session, functions.replaced_names())
    compare_signatures(session)
    if session.strict:
        compare_variables(session, original_source)
    return session


def _import_original(source: Path, ledger: Ledger) -> ModuleType | None:
    """Return the module of the original; None, with the reason in the ledger, where it does not
    import."""
    try:
        with ledger.step("original", "", "import"):
            return load_original(source)
    except BaseException as error:  # noqa: BLE001 - any import failure, SystemExit included; it is the reason
        ledger.fatal = {
            "what": "original",
            "reason": (
                f"the original does not import: {shorten_error(error)}{advice_for(error, source)}"
            ),
        }
        return None


def _import_changed(
    source: Path, original_source: Path, original: ModuleType, tracer: Tracer, ledger: Ledger
) -> ModuleType | None:
    """Return the module of the changed version, whose import is traced; None, with the reason in
    the ledger, where it does not import."""
    try:
        with ledger.step("changed", "", "import"), tracer:
            return load_changed(source, original_source, original)
    except BaseException as error:  # noqa: BLE001 - any import failure, SystemExit included; it is the finding
        ledger.fatal = {
            "what": "changed",
            "reason": f"the changed version does not import: {shorten_error(error)}",
        }
        return None


def _set_terms(session: Session, request: Mapping[str, Any]) -> None:
    """Set in the session how far the comparisons that the request wants go, and in its ledger the
    classes that are the same program because they are returned as they are."""
    ledger, undecided = session.ledger, request["same if returned"]
    versions = session.original, session.changed
    ledger.returned_classes = frozenset(
        name for name in undecided if is_bound_to_own_class(name, versions)
    )
    is_same = request["same"] and ledger.returned_classes.issuperset(undecided)
    session.compares_once = is_same or request["confirms"]
    session.beyond = request["effort"] != "low" and not session.compares_once
    session.thorough = request["effort"] == "high"
    session.strict = request["contract"] == "strict"
    session.by_rules = request["by rules"]
    session.model_classes = frozenset(request["model classes"])


def _note_import(session: Session) -> None:
    """Note in the domains of all definitions what was left out of a file that was imported in part
    and of the packages around it, and in the ledger the modules that are missing."""
    session.ledger.missing_modules = missing_modules()
    packages = left_out_packages(session.original.__name__)
    left_out = {f"without {description}" for description in packages.values()}
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
    equal = frozenset[str]()
    if by_hand and not session.replaced:
        equal = definitions_equal_for_tensors(changes, original, changed)
    prepare = partial(Conditions, late=late, by_hand=by_hand, equal_for_tensors=equal)
    session.conditions = (
        prepare(changed, changes, original),
        prepare(original, old_changes, changed, is_original=True),
    )
    avoided = session.ledger.avoided
    session.mutants = Mutants(changed, original, changes, avoided, thorough=session.thorough)
    if by_hand:
        session.old_mutants = Mutants(
            original, changed, old_changes, avoided, only_new_numbers=True
        )


def advice_for(error: BaseException, source: Path) -> str:
    """Return ": install PACKAGE, or ..." for the error that a package is missing, with all packages
    that the file in `source` is known to miss; "" for other errors."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    names = (error.name, *refused_modules(), *missing_packages(source))
    modules = dict.fromkeys(name.partition(".")[0] for name in names)
    packages = [_DISTRIBUTIONS.get(module, module) for module in modules]
    pronoun = "it" if len(packages) == 1 else "them"
    return f": install {', '.join(packages)}, or name an interpreter that has {pronoun} (--python)"
