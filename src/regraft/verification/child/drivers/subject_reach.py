"""Run a subject on both versions without a comparison, to find out which lines it reaches, and list
the classes that a model contains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from regraft.verification.child import weights
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_outcomes import Plan, Target
from regraft.verification.child.drivers import further_calls
from regraft.verification.child.drivers.driver_protocol import Subject
from regraft.verification.child.drivers.input_guesses import AcceptedInputs
from regraft.verification.child.session import Session, build_seeded, switch_mode


@dataclass(frozen=True, slots=True)
class Reach:
    """The lines of the changed file that a subject ran. `is_worth_comparing` tells that changed
    lines ran, or an argument was given, for the first time or the changed version failed."""

    is_worth_comparing: bool = False
    lines: frozenset[int] = frozenset()


def measure_reach(subject: Subject, session: Session) -> Reach:
    """Run the last call of a subject on both versions, in evaluation and in training, and return
    what it reached; nothing where the original fails.

    A subject of which only the changed version fails is worth comparing: the comparison then finds
    and reports the cause. The lines count as run only when the subject is compared.
    """
    older, newer = session.probes()
    with session.probe_absent_arguments() as gives_absent:
        with session.ledger.step("original", "probe", subject.name), older:
            if _run_error(subject, session.original) is not None:
                return Reach()
        with session.ledger.step("changed", "probe", subject.name), newer:
            has_failed = _run_error(subject, session.changed) is not None
        is_new = session.reached_by(older, newer) or gives_absent()
    return Reach(has_failed or is_new, frozenset(newer.lines))


def with_further_calls(
    subject: Subject, model: Any, accepted: AcceptedInputs, text: str, session: Session
) -> Iterator[Subject]:
    """Yield, as light subjects, a subject with further calls (`further_calls.more_calls` of its
    model, the inputs that it accepts and a text) that reach new lines, until no run is missing."""
    for calls in further_calls.more_calls(model, accepted, text):
        variant = replace(subject, calls=calls, light=True)
        if session.is_finished():
            return
        if measure_reach(variant, session).is_worth_comparing:
            yield variant


def class_names_in(model: Any, session: Session) -> frozenset[str]:
    """Return the names of the changed classes that a model of the original has instances of, also
    instances of their subclasses, and of all classes of the file to which one of its modules
    belongs."""
    values = (getattr(session.original, change.definition, None) for change in session.changes)
    changed_classes = [value for value in values if isinstance(value, type)]
    parts = tuple(model.modules())
    own_names = {
        type(part).__name__ for part in parts if type(part).__module__ == session.original.__name__
    }
    return (
        frozenset(
            cls.__name__ for cls in changed_classes if any(isinstance(part, cls) for part in parts)
        )
        | own_names
    )


def _run_error(subject: Subject, module: ModuleType) -> BaseException | None:
    """Build a subject from one version with seed 0 and run its last call in evaluation, then in
    training with a positive rate of dropout (`weights.RATE`); return the first error, or None."""
    try:
        model = build_seeded(0, subject.build, module)
        for training in (False, True):
            with weights.set_dropout_rate(model, weights.RATE):
                for call in subject.calls(0)[-1:]:
                    outcome = execute(
                        Target(switch_mode(model, training)), call, Plan(gradients=False)
                    )
                    if outcome.error is not None:
                        return outcome.error
    except Exception as error:  # noqa: BLE001 - arbitrary model code; the error is the result
        return error
    return None
