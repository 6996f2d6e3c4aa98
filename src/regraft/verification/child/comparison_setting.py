"""The conditions under which a subject is compared, and the recorded calls of its definitions under
them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch

from regraft.verification.child import call_arguments
from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_outcomes import Plan, Target
from regraft.verification.child.call_recording import Recorded, Recorder, recording
from regraft.verification.child.checks.comparison_domain import domain_of
from regraft.verification.child.comparison_terms import Difference
from regraft.verification.child.drivers.driver_protocol import Subject
from regraft.verification.child.failure_description import describe_failure
from regraft.verification.child.model_pair import Pair, build_both
from regraft.verification.child.reverted_definitions import blame, revert
from regraft.verification.child.session import Session

SEEDS = (0, 1)


@dataclass(frozen=True, slots=True)
class Setting:
    """The conditions of a comparison: subject, seed, number format and mode, with the pair that is
    compared."""

    subject: Subject
    pair: Pair
    seed: int
    dtype: str
    training: bool

    @property
    def mode(self) -> str:
        """Return "train" or "eval"."""
        return "train" if self.training else "eval"

    @property
    def first(self) -> bool:
        """Return whether comparisons that need one seed and one number format only run in this
        setting: with the first seed, in float32, of a subject that is not light."""
        return self.seed == SEEDS[0] and self.dtype == "float32" and not self.subject.light

    @property
    def brief(self) -> bool:
        """Return whether fewer comparisons run in this setting, as in float16 and float64.

        On CPU a convolution's backward pass in float16 may take a hundred times as long as in
        bfloat16, where all comparisons run.
        """
        return self.dtype in ("float16", "float64")

    def plan(self, *, recorded: bool) -> Plan:
        """Return the way to run a call here, a `recorded` call or a variant of one.

        Where the setting is `brief`, a recorded call has one backward pass and no second call, a
        variant has no backward pass. In float64 no call has gradients: values that a model computes
        in float32 anyway are no more exact there. A call of a slow subject runs once, and has
        gradients in training only.
        """
        gradients = (recorded or not self.brief) and self.dtype != "float64"
        gradients = gradients and (self.training or not self.subject.slow)
        repeats = recorded and not (self.brief or self.subject.slow)
        return Plan(self.seed, gradients=gradients, repeat=repeats, mutants=not self.subject.slow)


def make_pair(subject: Subject, seed: int, session: Session) -> Pair | None:
    """Build both models; definitions that cause a difference are refuted and reverted first. Return
    None where no model can be built, or every definition is refuted."""
    result = build_both(subject, seed, session)
    while isinstance(result, Difference):
        guilty = blame(session, lambda: as_difference(build_both(subject, seed, session)))
        for name in guilty:
            session.ledger.refute(
                name, result.sentence, describe_failure(subject, seed, None, None, result)
            )
        revert(session, guilty)
        result = build_both(subject, seed, session) if session.ledger.unrefuted() else None
    return result


def as_difference(result: Pair | Difference | None) -> Difference | None:
    """Return the argument if it is a difference, else None."""
    return result if isinstance(result, Difference) else None


def record_calls(setting: Setting, session: Session) -> Recorder | None:
    """Run the original on all calls of the subject, and return a recorder with the calls of its
    unrefuted definitions.

    None where a call cannot be made or raises: the reason is noted in `ledger.skipped`, and a
    subject that fails in float32 added to `session.subjects_not_run`. Attributes that are assigned
    late are noted in `session.late`, if `session.beyond` is set.
    """
    model, name = setting.pair.original, setting.subject.name
    target = Target(model, scope=session.original)
    calls = _make_calls(setting, session)
    if calls is None:
        return None
    relative_names = frozenset(relative.name for relative in session.relatives_to_run())
    with ExitStack() as stack:
        recorder = stack.enter_context(
            recording(session.original, session.ledger.unrefuted(), model, relative_names)
        )
        for definition in session.ledger.unrefuted() if session.beyond else ():
            cls = getattr(session.original, definition, None)
            stores = domain_of(definition, session).late
            stack.enter_context(session.late.watch(model, cls, definition, stores))
        plan = Plan(seed=setting.seed, gradients=False)
        what = f"run {name} in {setting.mode} mode, {setting.dtype}"
        for call in calls:
            with session.ledger.step("original", "", what):
                outcome = execute(target, cast_to_format(call, setting), plan)
            if outcome.error is not None:
                _note_failed_run(outcome.error, setting, session)
                return None
    return recorder


def _note_failed_run(error: BaseException, setting: Setting, session: Session) -> None:
    """Note in the ledger that the original of a subject does not run in a setting, and in
    `session.subjects_not_run` where that is in float32."""
    subject = setting.subject
    if setting.dtype == "float32":
        session.subjects_not_run.add(subject.name)
    text = f"{subject.name} ({subject.driver}): the original does not run in {setting.dtype}"
    session.ledger.skip(f"{text}: {type(error).__name__}: {str(error)[:200]}")


def _make_calls(setting: Setting, session: Session) -> tuple[Call, ...] | None:
    """Return the calls of a subject for the setting's seed; None, with the reason noted in
    `ledger.skipped`, where making them raises, as may happen for a call that continues from
    another."""
    try:
        return setting.subject.calls(setting.seed)
    except Exception as error:  # noqa: BLE001 - calls may run the model; recorded as the reason to skip
        name = f"{setting.subject.name} ({setting.subject.driver})"
        session.ledger.skip(
            f"{name}: no calls for seed {setting.seed}: {type(error).__name__}: {str(error)[:200]}"
        )
        return None


def cast_to_format(call: Call, setting: Setting) -> Call:
    """Return a call with its float tensors in the setting's number format, integers as they are;
    the call itself in float32."""
    if setting.dtype == "float32":
        return call
    dtype = getattr(torch, setting.dtype)

    def cast(tensor: Any) -> Any:
        """Return a floating tensor in the setting's number format, any other tensor as it is."""
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    return call_arguments.map_tensors(call, cast, call.label, call.beyond)


def depth(entry: Recorded) -> float:
    """Return the depth of a recorded call's module in its model, 0 for the model itself; infinity
    for a function."""
    return float("inf") if entry.path is None else entry.path.count(".") + bool(entry.path)


def has_counterpart(entry: Recorded, setting: Setting, session: Session) -> bool:
    """Return whether the changed version has a function of the name, or a module at the path, for a
    recorded call. A submodule whose class comes from the original file is none."""
    if entry.path is None:
        return isinstance(getattr(session.changed, entry.definition, None), FunctionType)
    module = dict(setting.pair.changed.named_modules()).get(entry.path)
    # an instance of a class of the original module is no evidence
    return module is not None and (
        entry.path == "" or type(module).__module__ != session.original.__name__
    )


def sentence_with_place(
    entry: Recorded, call: Call, setting: Setting, difference: Difference
) -> str:
    """Return the sentence of a difference, followed in parentheses by definition, path, model,
    mode, number format, label and shapes of the call."""
    place = f"{entry.definition} at {entry.path!r}" if entry.path else entry.definition
    condition = f", with {difference.mode}" if difference.mode else ""
    conditions = (
        f"{setting.mode} mode, {setting.dtype}{condition}, {call.label},"
        f" shapes {call_arguments.shapes(call)}"
    )
    return f"{difference.sentence} ({place} of {setting.subject.name}; {conditions})"
