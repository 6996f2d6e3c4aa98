"""Replay a recorded call on both versions, in all its variants and in all ways of running it, and
refute its definition by a difference."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from regraft.verification.child import weights
from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_comparison import (
    Sides,
    compare_runs,
    count_comparison,
    sides_of,
)
from regraft.verification.child.call_equivalence import (
    element_count,
)
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_outcomes import Plan, Target
from regraft.verification.child.call_recording import Recorded
from regraft.verification.child.call_variants import AS_RECORDED, SMALL, laid_out_calls, variants
from regraft.verification.child.checks.attribute_variants import (
    ATTRIBUTES,
    is_settable,
    set_labelled_attribute,
)
from regraft.verification.child.checks.comparison_domain import (
    domain_of,
)
from regraft.verification.child.checks.size_variants import resized_calls
from regraft.verification.child.checks.value_variants import EXTREME, UNDEFINED
from regraft.verification.child.comparison_setting import (
    Setting,
    has_counterpart,
    sentence_with_place,
)
from regraft.verification.child.comparison_terms import Difference
from regraft.verification.child.failure_description import describe_failure
from regraft.verification.child.inconclusive_differences import reason_to_leave_out
from regraft.verification.child.input_minimisation import minimise_call
from regraft.verification.child.parameter_alterations import BUFFERS, alteration_of
from regraft.verification.child.result_comparison import describe_differences
from regraft.verification.child.session import Session
from regraft.verification.child.torch_modes import INFERENCE, MODES, SWITCHED, switched_submodules
from regraft.verification.child.widened_calls import (
    note_given_arguments,
    widened_calls,
)


def replay_all(entry: Recorded, setting: Setting, session: Session, *, light: bool) -> None:
    """Replay the variants of an entry, the recorded call first, until a variant differs in the
    plain way, and refute the definition by that difference, or else by the first difference in a
    mode of PyTorch.

    Where the changed version has no counterpart, note that in the definition's record only.
    """
    if not has_counterpart(entry, setting, session):
        record = session.ledger.records[entry.definition]
        record.note(f"no counterpart of {entry.path!r} to replay on")
        return
    first_difference: tuple[Call, Difference] | None = None
    for call in _calls_to_replay(entry, setting, session, light=light):
        difference = _replay(entry, call, setting, session)
        if difference is not None and (first_difference is None or not difference.mode):
            first_difference = call, difference
            if not difference.mode:
                break
    if first_difference is not None:
        _refute(entry, *first_difference, setting, session)


def _calls_to_replay(
    entry: Recorded, setting: Setting, session: Session, *, light: bool
) -> tuple[Call, ...]:
    """Return the variants of a recorded call, the call itself first; with `light` the call alone.

    In the first setting, calls with other memory layouts follow, and, where the session goes beyond
    the recorded inputs, calls with other masks, sizes and values. In half precision the longest of
    those with other sizes follows where the change was made by hand.
    """
    calls = variants(entry.call)
    if light:
        return calls[:1]
    if setting.first:
        calls += laid_out_calls(entry.call)
        if session.beyond:
            calls += widened_calls(entry, setting, session)
    elif session.beyond and not session.by_rules and setting.dtype in ("bfloat16", "float16"):
        calls += _longest_call(entry, setting, session)
    return calls


def _longest_call(entry: Recorded, setting: Setting, session: Session) -> tuple[Call, ...]:
    """Return the call with the most elements among those with other sizes than a recorded call, at
    most once for each definition and number format: what half precision rounds away grows with
    positions and counts. () after that, and where there is no such call. Adds to
    `session.widened`."""
    key = entry.definition, f"longest in {setting.dtype}"
    if key in session.widened:
        return ()
    constants = domain_of(entry.definition, session).constants
    calls = resized_calls(entry.call, constants, features=False)
    longest = max(calls, key=element_count, default=None)
    if longest is None:
        return ()
    session.widened.add(key)
    return (longest,)


def _refute(
    entry: Recorded, call: Call, difference: Difference, setting: Setting, session: Session
) -> None:
    """Refute the definition of an entry by a difference in the ledger, with a recipe of its
    reproducer, after the inputs of the call have been made smaller as long as they differ in the
    same mode."""
    mode = difference.mode

    def check(smaller: Call) -> Difference | None:
        """Return the difference of a smaller call in the same mode of PyTorch, or None."""
        smaller_difference = _replay(entry, smaller, setting, session)
        is_alike = smaller_difference is not None and smaller_difference.mode == mode
        return smaller_difference if is_alike else None

    call, difference = minimise_call(call, difference, check, session.ledger)
    recipe = describe_failure(setting.subject, setting.seed, setting, (entry, call), difference)
    session.ledger.refute(
        entry.definition, sentence_with_place(entry, call, setting, difference), recipe
    )


@contextmanager
def _altered_targets(call: Call, targets: tuple[Target, ...]) -> Iterator[None]:
    """Alter parameters or attributes of both targets' modules in the body as the call's label says,
    and restore them; do nothing for all other calls and for functions."""
    with ExitStack() as stack:
        if call.label == SMALL:
            for target in targets:
                if target.module is not None:
                    stack.enter_context(weights.shrink_parameters(target.module))
        if call.label == BUFFERS:
            for target in targets:
                stack.enter_context(weights.change_buffers(target.module))
        alteration = alteration_of(call.label)
        if alteration is not None and targets[0].module is not None:
            for target in targets:
                stack.enter_context(weights.change_parameters(target.module, alteration))
        if call.beyond == ATTRIBUTES:
            stack.enter_context(
                set_labelled_attribute(tuple(target.module for target in targets), call.label)
            )
        yield


def _mode_of(plan: Plan) -> str:
    """Return the name of the way in which a plan runs a call: its mode of PyTorch, "a second call",
    "second derivatives" or "hooks"; "" for the plain way."""
    flag_by_name = {
        "a second call": plan.reused,
        "second derivatives": plan.twice,
        "hooks": plan.hooked,
    }
    return plan.mode or next((name for name, is_set in flag_by_name.items() if is_set), "")


def _replay(entry: Recorded, call: Call, setting: Setting, session: Session) -> Difference | None:
    """Replay a call under all its plans; return the first difference that is reproducible and
    evidence, with its mode, or None.

    Runs without a difference are counted in the definition's record; a doubtful difference becomes
    a note there. A call with an attribute that cannot be set is skipped, with None.
    """
    record = session.ledger.records[entry.definition]
    sides = sides_of(entry, setting, session)
    modules = sides.original.module, sides.changed.module
    if call.beyond == ATTRIBUTES and not is_settable(modules, call.label):
        return None
    plans = _plans(call, sides, setting, session)
    with _altered_targets(call, (sides.original, sides.changed)):
        for plan in plans:
            result = compare_runs(sides, call, plan, session)
            if isinstance(result, Difference):
                if doubt := _reason_not_to_count(result, sides, call, plan, setting, session):
                    record.note(doubt)
                else:
                    return replace(result, mode=_mode_of(plan))
            elif result is not None:
                note_given_arguments(call, sides, session)
                count_comparison(record, setting, call, result, plan.mode)
                record.replays += 1
                record.instances.add(entry.path or entry.definition)
    return None


def _plans(call: Call, sides: Sides, setting: Setting, session: Session) -> list[Plan]:
    """Return the ways to run a call, the plain way first; only the recorded call of a subject that
    is not slow has several.

    In evaluation the recorded call also runs without gradients, and in the first setting for second
    derivatives, twice, with hooks, in each of MODES and with switched submodules, as far as the
    session is strict and goes beyond the recorded inputs.
    """
    is_recorded = call.label == AS_RECORDED and not setting.subject.slow
    plan = setting.plan(recorded=is_recorded)
    has_gradients = plan.gradients and call.beyond not in (EXTREME, UNDEFINED)
    plans = [replace(plan, gradients=has_gradients)]
    if is_recorded and not setting.training:
        plans.append(Plan(setting.seed, gradients=False))
        if setting.first and session.beyond:
            plans.append(Plan(setting.seed, gradients=False, reused=True))
    if is_recorded and setting.first:
        plans.append(Plan(setting.seed, twice=True))
        if sides.original.module is not None and session.strict:
            plans.append(Plan(setting.seed, hooked=True))
        modes = MODES if session.beyond else ()
        plans += [Plan(setting.seed, gradients=mode != INFERENCE, mode=mode) for mode in modes]
        if session.beyond and _runs_switched(sides.original, call, setting.seed):
            plans.append(Plan(setting.seed, mode=SWITCHED))
    return plans


def _runs_switched(original: Target, call: Call, seed: int) -> bool:
    """Return whether the original has submodules that act by their mode, and runs with these in the
    other mode without drawing random numbers that change its results."""
    if not switched_submodules(original.module):
        return False
    first, second = (
        execute(original, call, Plan(other_seed, gradients=False, mode=SWITCHED))
        for other_seed in (seed, seed + 1)
    )
    return first.error is None and not describe_differences(first.outputs, second.outputs)


def _reason_not_to_count(
    difference: Difference,
    sides: Sides,
    call: Call,
    plan: Plan,
    setting: Setting,
    session: Session,
) -> str:
    """Return why a difference is no evidence, as a note for the definition's record: it does not
    reproduce in a second comparison, or has a reason to leave it out; "" where it is evidence."""
    if not isinstance(compare_runs(sides, call, plan, session), Difference):
        return f"a difference did not reproduce: {difference.sentence}"
    reason = reason_to_leave_out(difference, sides, call, plan, session)
    place = f"{call.label} in {setting.mode} mode, {setting.dtype}"
    return f"{place}, is left out: {reason}" if reason else ""
