"""See what a subject holds and which changed lines it would reach, without comparing anything yet."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from regraft.verify.child import weights
from regraft.verify.child.drivers.base import Subject
from regraft.verify.child.replay import Plan, Target, execute
from regraft.verify.child.session import Session, in_mode, seeded


@dataclass(frozen=True, slots=True)
class Reach:
    """What a subject runs: whether changed lines ran for the first time, and all lines of the file."""

    news: bool = False
    lines: frozenset[int] = frozenset()


def reach(subject: Subject, session: Session) -> Reach:
    """Run both versions once in each mode.

    A subject of which only the changed version fails is news: the comparison finds out why, and blames.
    """
    older, newer = session.probes()
    with session.ledger.step("original", "probe", subject.name), older:
        if _failure(subject, session.original) is not None:
            return Reach()
    with session.ledger.step("changed", "probe", subject.name), newer:
        failed = _failure(subject, session.changed) is not None
    return Reach(failed or session.reached_by(older, newer), frozenset(newer.lines))


def held(model: Any, session: Session) -> frozenset[str]:
    """Names of the changed classes and of the others of the file that a model has instances of."""
    named = (getattr(session.original, change.definition, None) for change in session.changes)
    classes = [value for value in named if isinstance(value, type)]
    parts = tuple(model.modules())
    own = {type(part).__name__ for part in parts if type(part).__module__ == session.original.__name__}
    return frozenset(c.__name__ for c in classes if any(isinstance(part, c) for part in parts)) | own


def _failure(subject: Subject, module: ModuleType) -> BaseException | None:
    """Build and run the last call in evaluation and in training; return the error that ended it."""
    try:
        model = seeded(0, subject.build, module)
        for training in (False, True):
            with weights.dropout_rate(model, weights.RATE):
                for call in subject.calls(0)[-1:]:
                    outcome = execute(Target(in_mode(model, training)), call, Plan(gradients=False))
                    if outcome.error is not None:
                        return outcome.error
    except Exception as error:  # noqa: BLE001 - arbitrary model code; the error is the result
        return error
    return None
