"""Under which conditions a subject is compared, and what of it runs there."""

from __future__ import annotations

from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch

from regraft.verify.child import tree
from regraft.verify.child.compare import Difference
from regraft.verify.child.drivers.base import Subject
from regraft.verify.child.failure import describe
from regraft.verify.child.pair import Pair, build
from regraft.verify.child.record import Recorded, Recorder, recording
from regraft.verify.child.replay import Plan, Target, execute
from regraft.verify.child.session import Session
from regraft.verify.child.tree import Call

SEEDS = (0, 1)


@dataclass(frozen=True, slots=True)
class Setting:
    """Under which conditions a comparison runs."""

    subject: Subject
    pair: Pair
    seed: int
    dtype: str
    training: bool

    @property
    def mode(self) -> str:
        return "train" if self.training else "eval"

    @property
    def first(self) -> bool:
        """Whether what needs no second seed or number format is compared here."""
        return self.seed == SEEDS[0] and self.dtype == "float32" and not self.subject.light

    @property
    def brief(self) -> bool:
        """Whether less is compared here: on CPU a convolution's backward pass in float16 may take a hundred times as
        long as in bfloat16, where everything is."""
        return self.dtype in ("float16", "float64")

    def plan(self, *, recorded: bool) -> Plan:
        """How a call runs here, one that is as `recorded` or a variant of such a call.

        Where it is `brief`, a recorded call has one backward pass and no second call, a variant has none. In float64
        nothing has gradients: what a model computes in float32 anyway is no more exact there.
        """
        gradients = (recorded or not self.brief) and self.dtype != "float64"
        return Plan(self.seed, gradients=gradients, repeat=recorded and not self.brief)


def make_pair(subject: Subject, seed: int, session: Session) -> Pair | None:
    made = build(subject, seed, session)
    while isinstance(made, Difference):
        guilty = session.blame(lambda: as_difference(build(subject, seed, session)))
        for name in guilty:
            session.ledger.refute(name, made.sentence, describe(subject, seed, None, None, made))
        session.restore(guilty)
        made = build(subject, seed, session) if session.ledger.open() else None
    return made


def as_difference(made: Pair | Difference | None) -> Difference | None:
    return made if isinstance(made, Difference) else None


def record_calls(setting: Setting, session: Session) -> Recorder | None:
    """Run the original on all calls; None where it does not run."""
    model, name = setting.pair.original, setting.subject.name
    target = Target(model, scope=session.original)
    calls = _calls(setting, session)
    if calls is None:
        return None
    noted = frozenset(relative.name for relative in session.unmet())
    with recording(session.original, session.ledger.open(), model, noted) as recorder:
        for call in calls:
            with session.ledger.step("original", "", f"run {name} in {setting.mode} mode, {setting.dtype}"):
                outcome = execute(target, fitted(call, setting), Plan(seed=setting.seed, gradients=False))
            if outcome.error is not None:
                if setting.dtype == "float32":
                    session.halting.add(name)
                text = f"{name} ({setting.subject.driver}): the original does not run in {setting.dtype}"
                session.ledger.skip(f"{text}: {type(outcome.error).__name__}: {str(outcome.error)[:200]}")
                return None
    return recorder


def _calls(setting: Setting, session: Session) -> tuple[Call, ...] | None:
    """Return the calls of a subject; None where making them raises, as a call that goes on from another may."""
    try:
        return setting.subject.calls(setting.seed)
    except Exception as error:  # noqa: BLE001 - calls may run the model; recorded as the reason to skip
        name = f"{setting.subject.name} ({setting.subject.driver})"
        session.ledger.skip(f"{name}: no calls for seed {setting.seed}: {type(error).__name__}: {str(error)[:200]}")
        return None


def fitted(call: Call, setting: Setting) -> Call:
    """Give a call's float tensors the model's number format."""
    if setting.dtype == "float32":
        return call
    dtype = getattr(torch, setting.dtype)

    def cast(leaf: Any) -> Any:
        return leaf.to(dtype) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf

    return Call(tree.map_leaves(call.args, cast), tree.map_leaves(dict(call.kwargs), cast), call.label, call.beyond)


def depth(entry: Recorded) -> float:
    return float("inf") if entry.path is None else entry.path.count(".") + bool(entry.path)


def has_counterpart(entry: Recorded, setting: Setting, session: Session) -> bool:
    if entry.path is None:
        return isinstance(getattr(session.changed, entry.definition, None), FunctionType)
    part = dict(setting.pair.changed.named_modules()).get(entry.path)
    # what an original class of the original module has built is no evidence
    return part is not None and (entry.path == "" or type(part).__module__ != session.original.__name__)


def where(entry: Recorded, call: Call, setting: Setting, found: Difference) -> str:
    place = f"{entry.definition} at {entry.path!r}" if entry.path else entry.definition
    under = f", with {found.mode}" if found.mode else ""
    what = f"{setting.mode} mode, {setting.dtype}{under}, {call.label}, shapes {tree.shapes(call)}"
    return f"{found.sentence} ({place} of {setting.subject.name}; {what})"
