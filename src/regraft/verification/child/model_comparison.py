"""Compare a whole model, and attribute a difference to the definitions that cause it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from regraft.execution.compare import are_alike
from regraft.verification.child import call_arguments, weights
from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_comparison import (
    Sides,
    compare_runs,
    count_comparison,
    module_sides,
)
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_outcomes import Outcome, Plan
from regraft.verification.child.call_variants import AS_RECORDED
from regraft.verification.child.comparison_setting import Setting, cast_to_format
from regraft.verification.child.comparison_terms import Difference
from regraft.verification.child.failure_description import describe_failure
from regraft.verification.child.float64_runs import execute_exactly
from regraft.verification.child.inconclusive_differences import reason_to_leave_out
from regraft.verification.child.input_minimisation import minimise_call
from regraft.verification.child.model_pair import Pair, build_both
from regraft.verification.child.reverted_definitions import blame, only_change, revert
from regraft.verification.child.rounding import is_noise
from regraft.verification.child.session import Session
from regraft.verification.child.state_watch import is_state

_JITTERED = 4  # runs of the original with other roundings of its parameters


def compare_model(setting: Setting, session: Session, recorded: frozenset[str]) -> None:
    """Compare the whole model on every call of the subject; refute and revert the definitions that
    cause a difference, until no difference or unrefuted definition remains.

    recorded: the definitions with recorded calls. An equal comparison counts in the records of
    these, and of each definition whose changed lines have all run.
    """
    for call in setting.subject.calls(setting.seed):
        fitted_call = cast_to_format(call, setting)
        fitted_call = fitted_call if fitted_call.beyond else replace(fitted_call, label=AS_RECORDED)
        result = _compare_call(setting, session, fitted_call)
        while isinstance(result, Difference) and session.ledger.unrefuted():
            result = _refute_causes(result, fitted_call, setting, session)
        if isinstance(result, Outcome):
            _count_for_definitions(setting, session, fitted_call, result, recorded)


def run_constructor_mutants(setting: Setting, session: Session) -> None:
    """Build the model with each pending mutant of changed constructors, and run its first call: set
    `killed` of mutants that give another model or another result. Do nothing without mutants."""
    if session.mutants is None:
        return
    call = cast_to_format(setting.subject.calls(setting.seed)[0], setting)
    for mutant in session.mutants.pending("", "", constructing=True):
        with session.plant(mutant):
            pair = build_both(setting.subject, setting.seed, session)
            mutant.killed = isinstance(pair, Difference)
            if isinstance(pair, Pair):
                with pair.mode(False, weights.RATE):
                    result = compare_runs(
                        module_sides(pair, "", "", session), call, Plan(setting.seed), session
                    )
                mutant.killed = isinstance(result, Difference)


def _refute_causes(
    difference: Difference, call: Call, setting: Setting, session: Session
) -> Difference | Outcome | None:
    """Refute the definitions that cause a whole model's difference, each by the smallest inputs
    that show it, and revert them; return what the comparison without them gives: another
    difference, the changed version's equal outcome, or None where it says nothing. Return None,
    with the reason noted in the ledger, where the difference did not reproduce."""

    def check(smaller_call: Call = call) -> Difference | None:
        """Return the difference of a call on newly built models, or None."""
        result = _compare_call(setting, session, smaller_call, fresh=True)
        return result if isinstance(result, Difference) else None

    if check() is None:
        session.ledger.skip(
            f"a difference of {setting.subject.name} did not reproduce: {difference.sentence}"
        )
        return None
    guilty = blame(session, check)
    for name in guilty:
        with only_change(session, name):
            smaller_call, small_difference = minimise_call(call, difference, check, session.ledger)
        place = (
            f"{setting.subject.name} as a whole; {setting.mode} mode, {setting.dtype}, "
            f"shapes {call_arguments.shapes(smaller_call)}"
        )
        recipe = describe_failure(
            setting.subject, setting.seed, setting, (None, smaller_call), small_difference
        )
        session.ledger.refute(name, f"{small_difference.sentence} ({place})", recipe)
    revert(session, guilty)
    return _compare_call(setting, session, call)


def _compare_call(
    setting: Setting, session: Session, call: Call, *, fresh: bool = False
) -> Difference | Outcome | None:
    """Compare a call of the whole model, which is built anew if `fresh` or if definitions were
    reverted. Return a difference (also of building), or the changed version's equal outcome, or
    None where the original is not built or does not run, or the difference is no evidence."""
    if not fresh and len(session.ledger.unrefuted()) == len(session.ledger.records):
        return _compare_on_pair(setting.pair, setting, session, call)
    built = build_both(setting.subject, setting.seed, session)
    if not isinstance(built, Pair):
        return built
    pair = built.cast(getattr(torch, setting.dtype))
    with pair.mode(setting.training, 0.0 if setting.training else weights.RATE):
        return _compare_on_pair(pair, setting, session, call)


def _compare_on_pair(
    pair: Pair, setting: Setting, session: Session, call: Call
) -> Difference | Outcome | None:
    """Compare a call on a pair. Return a difference, or the changed version's outcome where both
    agree or differ by rounding only (in formats other than float32), or None where the original
    does not run or, with the reason noted in the ledger, the difference is no evidence."""
    plan = setting.plan(recorded=not setting.brief)
    sides = module_sides(pair, "", "", session)
    result = compare_runs(sides, call, plan, session)
    if not isinstance(result, Difference):
        return result
    if setting.dtype != "float32" and _is_rounding_only(sides, call, plan):
        return execute(sides.changed, call, plan)
    if reason := reason_to_leave_out(result, sides, call, plan, session):
        name = f"{setting.subject.name} as a whole, {setting.mode} mode, {setting.dtype}"
        session.ledger.skip(f"{name}, is left out: {reason}")
        return None
    return result


def _is_rounding_only(sides: Sides, call: Call, plan: Plan) -> bool:
    """Return whether a difference in half precision is rounding: there, errors pile up over layers,
    so the overall size of the error decides.

    The original's error is also that with parameters which are off by one rounding: where two
    experts are nearly tied, rounding decides between them.
    """
    original_outcome = execute(sides.original, call, plan)
    exact_outcome = execute_exactly(
        sides.exact_original(False), sides.original, call, plan, draws=original_outcome.draws
    )
    changed_outcome = execute(sides.changed, call, plan)
    if _is_no_less_exact(original_outcome, changed_outcome, exact_outcome):
        return True
    for seed in range(_JITTERED):
        with weights.change_parameters(
            sides.original.module, weights.parameters_off_by_rounding(seed)
        ):
            original_outcome = execute(sides.original, call, plan)
        if _is_no_less_exact(original_outcome, changed_outcome, exact_outcome):
            return True
    return False


def _is_no_less_exact(original: Outcome, changed: Outcome, exact: Outcome) -> bool:
    """Return whether the changed outcome is no further from the exact outcome than the original's,
    up to twice its error and a few roundings; paths of outputs and state have to be equal. False
    where a run raises, or the changed version overwrites more arguments."""
    if exact.error or original.error or changed.error or changed.backward_error:
        return False
    if list(original.outputs) != list(changed.outputs):
        return False
    if set(changed.overwritten) - set(original.overwritten):
        return False
    for path, value in original.outputs.items():
        counterpart = changed.outputs.get(path)
        if isinstance(value, torch.Tensor):
            if not _is_tensor_no_less_exact(value, counterpart, exact.outputs.get(path)):
                return False
        elif is_state(path) and value != counterpart:
            return False
    return _are_gradients_no_less_exact(
        original.gradients or {}, changed.gradients or {}, exact.gradients or {}
    )


def _are_gradients_no_less_exact(
    original: Mapping[str, Any], changed: Mapping[str, Any], exact: Mapping[str, Any]
) -> bool:
    """Return whether the error of the changed gradients is at most twice the original's and a few
    roundings. The error is that of all parameters together: the root of the sum of the squares of
    each gradient's own relative error. False where a gradient is missing, of another shape or
    format, or noise, and where one that is zero exactly is more than twice the original's.

    If rounding makes the model choose another expert, the gradients of its router alone change; a
    gradient that is wrong shows where its definition is compared by itself.
    """
    original_error, changed_error, count = 0.0, 0.0, 0
    gradients = {path: value for path, value in original.items() if isinstance(value, torch.Tensor)}
    for path, value in gradients.items():
        counterpart: Any = changed.get(path)
        exact_value: Any = exact.get(path)
        if not _are_comparable(value, counterpart, exact_value) or is_noise(value, exact_value):
            return False
        norm = float(exact_value.norm())
        if not norm and float(counterpart.double().norm()) > 2 * float(value.double().norm()):
            return False
        if norm:
            original_error += (float((value.double() - exact_value).norm()) / norm) ** 2
            changed_error += (float((counterpart.double() - exact_value).norm()) / norm) ** 2
            count += 1
    epsilons = (torch.finfo(value.dtype).eps for value in gradients.values())
    rounding = 2 * max(epsilons, default=0.0)
    return bool(changed_error**0.5 <= 2 * original_error**0.5 + rounding * count**0.5)


def _are_comparable(original: Any, changed: Any, exact: Any) -> bool:
    """Return whether two results are dense tensors of equal shape and format, and the exact result
    a tensor."""
    are_tensors = are_alike(original, changed) and isinstance(exact, torch.Tensor)
    return are_tensors and original.layout is torch.strided


def _is_tensor_no_less_exact(original: Any, changed: Any, exact: Any) -> bool:
    """Return whether the changed result is no further from the exact result than twice the
    original's error and two roundings; results without floating point have to be equal. False for
    noise."""
    if not _are_comparable(original, changed, exact):
        return False
    if not original.is_floating_point():
        return bool(torch.equal(original, changed))
    if is_noise(original, exact):
        return False
    original_error, changed_error = (
        (original.double() - exact).norm(),
        (changed.double() - exact).norm(),
    )
    return bool(
        changed_error
        <= 2 * original_error + 2 * torch.finfo(original.dtype).eps * exact.double().norm()
    )


def _count_for_definitions(
    setting: Setting, session: Session, call: Call, outcome: Outcome, recorded: frozenset[str]
) -> None:
    """Count an equal whole-model comparison in the record of every unrefuted definition that took
    part in it: those in `recorded`, and those whose changed lines have all run."""
    for change in session.changes:
        record = session.ledger.records[change.definition]
        has_run = change.definition in recorded or not session.tracer.gaps(change)
        if has_run and not record.refuted:
            record.wholes += 1
            count_comparison(record, setting, call, outcome)
