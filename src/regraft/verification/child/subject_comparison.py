"""Compare a subject, a model with its calls, in both versions under all conditions, and note the
outcome for each definition."""

from __future__ import annotations

import math
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch

from regraft.execution.nested import map_leaves
from regraft.verification.child import call_arguments, weights
from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_comparison import (
    Sides,
    compare_runs,
    count_comparison,
    sides_of,
)
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_outcomes import Plan, Target
from regraft.verification.child.call_recording import Recorded, Recorder
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
    SEEDS,
    Setting,
    depth,
    has_counterpart,
    make_pair,
    record_calls,
    sentence_with_place,
)
from regraft.verification.child.comparison_terms import Difference
from regraft.verification.child.drivers.driver_protocol import Subject
from regraft.verification.child.failure_description import describe_failure
from regraft.verification.child.inconclusive_differences import reason_to_leave_out
from regraft.verification.child.input_minimisation import minimise_call
from regraft.verification.child.model_comparison import compare_model, run_constructor_mutants
from regraft.verification.child.parameter_values import BUFFERS, alteration_of
from regraft.verification.child.result_comparison import describe_differences
from regraft.verification.child.session import Session
from regraft.verification.child.torch_modes import INFERENCE, MODES, SWITCHED, switched_submodules
from regraft.verification.child.widened_calls import (
    module_of,
    note_given_arguments,
    values_read_by_one_version,
    widened_calls,
)

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_SIZES = 2  # calls that differ in sizes alone, which are compared beyond the recorded inputs
_SETTING_SECONDS = 6.0  # of processor time, before the replays of a further setting are cut short


def examine(subject: Subject, session: Session, *, brief: bool = False) -> None:
    """Compare a subject in all settings (`examine_in_steps`)."""
    for _ in examine_in_steps(subject, session, brief=brief):
        pass


def examine_in_steps(subject: Subject, session: Session, *, brief: bool = False) -> Iterator[None]:
    """Compare a subject (a model with calls) under both seeds, all number formats and both modes,
    and yield after each of these settings; refute definitions that differ, revert these to the
    original and go on. Save the ledger at the end.

    Stop where time is up, where every definition is refuted, or where a model cannot be built. A
    brief examination, and a subject that is compared once, uses the first seed; a brief one float32
    only.
    """
    for seed in SEEDS[: 1 if subject.once or brief else None]:
        for dtype in _formats(subject, session, seed, brief=brief):
            for training in (False, True):
                if not session.ledger.unrefuted() or session.ledger.is_late():
                    return
                if not _examine_setting(subject, session, seed, dtype, training):
                    return
                yield
    session.ledger.save()


def _formats(subject: Subject, session: Session, seed: int, *, brief: bool) -> tuple[Any, ...]:
    """Return the number formats to run a subject in with a seed.

    With the first seed these are all (float64 only where the session goes beyond the recorded
    inputs), or the first `subject.formats` of them if the subject is compared once; float32 and
    bfloat16 with other seeds, float32 alone for a brief examination.
    """
    if seed != SEEDS[0]:
        return DTYPES[:2]  # float16 and float64 once
    if brief:
        return DTYPES[:1]
    dtypes = DTYPES if session.beyond else DTYPES[:-1]
    return dtypes[: subject.formats] if subject.once else dtypes


def _examine_setting(
    subject: Subject, session: Session, seed: int, dtype: Any, training: bool
) -> bool:
    """Compare a subject under a setting: its recorded calls, the whole model, and in the first
    setting its constructors' mutants. Definitions that are refuted are reverted to the original,
    and the comparison starts again.

    A slow model whose only call was replayed is not compared as a whole again. What was replayed
    and ran is added to `session.replayed` and `session.ran`, and the ledger saved. Return False
    where no model can be built, or where the original does not run in float32, so that further
    settings are in vain; else True.
    """
    replayed_entries: set[int] = set()
    kinds: set[str] = set()
    recorder: Recorder | None = None
    while True:
        built = make_pair(subject, seed, session)
        if built is None:
            return False
        pair = built.cast(dtype)
        setting = Setting(subject, pair, seed, str(dtype).removeprefix("torch."), training)
        # Evaluation keeps a high dropout rate: a version that drops there differs. Training is
        # exact at rate 0.
        with pair.mode(training, 0.0 if training else weights.RATE):
            recorder = recorder or record_calls(setting, session)
            if recorder is None:
                return bool(dtype != torch.float32)
            if _replay_until_refuted(recorder.calls, replayed_entries, kinds, setting, session):
                break
        session.revert(session.ledger.refuted())
    if not _compares_as_whole(recorder, setting, session):
        compare_model(setting, session, frozenset(entry.definition for entry in recorder.calls))
    if setting.first and not training:
        run_constructor_mutants(setting, session)
    session.replayed |= kinds
    for name in recorder.ran:
        session.ran.setdefault(name, set()).add(setting.mode)
    session.ledger.save()
    return True


def _compares_as_whole(recorder: Recorder, setting: Setting, session: Session) -> bool:
    """Return whether the replays of the recorded calls already compare a slow model on all of its
    calls: its class is changed and not refuted, and it has one call, since of calls with equal
    shapes only the first is recorded."""
    names = session.ledger.unrefuted()
    return (
        setting.subject.slow
        and any(entry.path == "" and entry.definition in names for entry in recorder.calls)
        and len(setting.subject.calls(setting.seed)) == 1
    )


def _replay_until_refuted(
    entries: list[Recorded],
    replayed_entries: set[int],
    kinds: set[str],
    setting: Setting,
    session: Session,
) -> bool:
    """Replay the entries whose numbers are not in `replayed_entries`, innermost and largest first,
    and add their numbers; return False once a definition is refuted while others are not, since
    modules that hold an instance of it have to be built anew then; else True.

    Of calls that count as alike (`kinds`, to which they are added) all but the first are replayed
    as recorded only, and not at all in a brief setting; a large call comes first, as a mix-up of
    rows needs more than one. Of calls of one form, such as the steps that generate tokens, all but
    the first `_SIZES` are replayed as recorded only. Skipped are entries of refuted definitions,
    and those that an earlier subject has replayed where the definition is complete: the heads of a
    family contain the same model. After `_SETTING_SECONDS` in a setting that is not the first
    (convolutions in float16 are slow on CPUs), one more entry of each definition without an entry
    is replayed, as recorded. Calls of a slow model itself are always replayed.
    """
    deadline = math.inf if setting.first else time.process_time() + _SETTING_SECONDS
    replayed_names: set[str] = set()
    for number, entry in sorted(
        enumerate(entries), key=lambda pair: (-depth(pair[1]), -_element_count(pair[1].call))
    ):
        if number in replayed_entries or entry.definition not in session.ledger.unrefuted():
            continue
        replayed_entries.add(number)
        context = _context_of(entry, setting)
        kind = f"{context} {_describe_arguments(entry.call)}"
        is_required = setting.subject.slow and entry.path == ""
        is_late = time.process_time() > deadline
        is_covered = _is_covered(entry.definition, kind, kinds, setting, session)
        if not is_required and (is_covered or (is_late and entry.definition in replayed_names)):
            continue
        is_repetition = kind in kinds or _count_form(entry, context, session) > _SIZES
        own_setting = _setting_for(entry, setting, session)
        is_light = own_setting.subject.light or is_late or is_repetition
        _replay_all(entry, own_setting, session, light=is_light)
        kinds.add(kind)
        replayed_names.add(entry.definition)
        if entry.definition not in session.ledger.unrefuted() and session.ledger.unrefuted():
            return False
    return True


def _setting_for(entry: Recorded, setting: Setting, session: Session) -> Setting:
    """Return the setting in which a recorded call is replayed. A light subject counts as one that
    is not where it is the first to run the definition (a function of eager attention, say, which
    only a variation of the model calls), or the first to run it with these values of attributes
    that only one version reads. A slow subject, and one that is compared once without such values,
    keep the setting. Adds to `session.first_subjects`."""
    subject = setting.subject
    values = values_read_by_one_version(entry, setting, session)
    first_name = session.first_subjects.setdefault(f"{entry.definition} {values}", subject.name)
    if first_name != subject.name or subject.slow or (subject.once and not values):
        return setting
    return replace(setting, subject=replace(subject, light=False))


def _is_covered(
    definition: str, kind: str, kinds: set[str], setting: Setting, session: Session
) -> bool:
    """Return whether an earlier subject has replayed calls of this kind of a complete definition,
    or this subject has in a brief setting; `kinds` are the kinds that it has replayed here."""
    was_replayed = kind in session.replayed and session.is_complete(definition)
    return was_replayed or (kind in kinds and setting.brief)


def _count_form(entry: Recorded, context: str, session: Session) -> int:
    """Count an entry in `session.forms`, and return how many entries so far have its form in this
    context, itself included.

    Calls of one form count as alike but for their sizes, and these compare alike: with each other,
    with 1 and 2, and with the constants in the changed lines.
    """
    constants = domain_of(entry.definition, session).constants.sizes if session.beyond else ()
    limits = sorted({1, 2, *constants})
    sizes = sorted({size for tensor in call_arguments.tensors(entry.call) for size in tensor.shape})
    places = {
        size: (rank, bisect_left(limits, size), bisect_right(limits, size))
        for rank, size in enumerate(sizes)
    }
    form = f"{context} {_describe_arguments(entry.call, places)}"
    session.forms[form] += 1
    return session.forms[form]


def _element_count(call: Call) -> int:
    """Return the number of elements in the tensors of a call."""
    return sum(tensor.numel() for tensor in call_arguments.tensors(call))


def _context_of(entry: Recorded, setting: Setting) -> str:
    """Return a text that is equal for recorded calls of a definition in the same setting, of
    modules that print alike, with the same plain attributes and configurations."""
    module = module_of(entry, setting)
    plain: dict[str, Any] = {}
    configs: dict[int, Any] = {}
    for path, submodule in module.named_modules() if module is not None else ():
        for name, value in vars(submodule).items():
            if isinstance(value, bool | int | float | str):
                plain[f"{path}.{name}"] = value
            elif hasattr(value, "to_dict"):
                configs[id(value)] = value
    settings = [str(config.to_dict()) for config in configs.values()]
    conditions = f"{setting.mode} {setting.dtype} {setting.seed} {setting.subject.light}"
    return f"{entry.definition} {module} {plain} {settings} {conditions}"


def _describe_arguments(call: Call, places: Mapping[int, object] | None = None) -> Any:
    """Return the arguments of a call with the properties that distinguish calls in the place of
    tensors and objects, and with `places` in the place of the sizes of tensors."""
    return map_leaves((call.args, dict(call.kwargs)), lambda leaf: _describe_leaf(leaf, places))


def _describe_leaf(leaf: Any, places: Mapping[int, object] | None) -> Any:
    """Return the properties of an argument that distinguish calls: shape (or the `places` of its
    sizes), format and whether it is a mask for a tensor, a plain value as it is, the class name of
    any other object."""
    if isinstance(leaf, torch.Tensor):
        shape = tuple(size if places is None else places[size] for size in leaf.shape)
        return f"{shape} {leaf.dtype} {call_arguments.is_mask(leaf)}"
    return (
        leaf
        if leaf is None or isinstance(leaf, bool | int | float | str | torch.dtype)
        else type(leaf).__name__
    )


def _replay_all(entry: Recorded, setting: Setting, session: Session, *, light: bool) -> None:
    """Replay the variants of an entry, the recorded call first, until a variant differs in the
    plain way, and refute the definition by that difference, or else by the first difference in a
    mode of PyTorch.

    Where the changed version has no counterpart, note that in the definition's record only.
    """
    if not has_counterpart(entry, setting, session):
        session.ledger.records[entry.definition].note(
            f"no counterpart of {entry.path!r} to replay on"
        )
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
    positions and counts. Adds to `session.widened`."""
    key = entry.definition, f"longest in {setting.dtype}"
    if key in session.widened:
        return ()
    constants = domain_of(entry.definition, session).constants
    calls = resized_calls(entry.call, constants, features=False)
    longest = max(calls, key=_element_count, default=None)
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
