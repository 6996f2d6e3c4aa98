"""Compare a whole model, and pin a difference on the definitions that cause it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from regraft.verify.child import tree, weights
from regraft.verify.child.compare import Difference, is_noise
from regraft.verify.child.failure import describe
from regraft.verify.child.minimise import smallest
from regraft.verify.child.pair import Pair, build
from regraft.verify.child.replay import Outcome, Plan, execute
from regraft.verify.child.runs import Sides, compare_runs, count, left_out, module_sides
from regraft.verify.child.session import Session
from regraft.verify.child.setting import Setting, fitted
from regraft.verify.child.state import is_state
from regraft.verify.child.tree import Call
from regraft.verify.child.variants import AS_RECORDED

_JITTERED = 4  # runs of the original with other roundings of its parameters


def compare_whole(setting: Setting, session: Session, recorded: frozenset[str]) -> None:
    """Compare the whole model on every call; a difference is pinned on the definitions that cause it."""
    for call in setting.subject.calls(setting.seed):
        given = fitted(call, setting)
        given = given if given.beyond else replace(given, label=AS_RECORDED)
        found = _difference(setting, session, given)
        while isinstance(found, Difference) and session.ledger.open():
            found = _pin(found, given, setting, session)
        if isinstance(found, Outcome):
            _credit(setting, session, given, found, recorded)


def challenge_constructors(setting: Setting, session: Session) -> None:
    """Build the model with mutants of changed constructors: another model or another result kills them."""
    if session.mutants is None:
        return
    call = fitted(setting.subject.calls(setting.seed)[0], setting)
    for mutant in session.mutants.open("", "", constructing=True):
        with session.plant(mutant):
            pair = build(setting.subject, setting.seed, session)
            mutant.killed = isinstance(pair, Difference)
            if isinstance(pair, Pair):
                with pair.mode(False, weights.RATE):
                    result = compare_runs(module_sides(pair, "", "", session), call, Plan(setting.seed), session)
                mutant.killed = isinstance(result, Difference)


def _pin(found: Difference, call: Call, setting: Setting, session: Session) -> Difference | Outcome | None:
    """Refute the definitions that cause a whole model's difference, and compare again without them."""

    def check(given: Call = call) -> Difference | None:
        result = _difference(setting, session, given, fresh=True)
        return result if isinstance(result, Difference) else None

    if check() is None:
        session.ledger.skip(f"a difference of {setting.subject.name} did not reproduce: {found.sentence}")
        return None
    guilty = session.blame(check)
    for name in guilty:
        with session.only(name):
            given, shown = smallest(call, found, check, session.ledger)
        where = f"{setting.subject.name} as a whole; {setting.mode} mode, {setting.dtype}, shapes {tree.shapes(given)}"
        recipe = describe(setting.subject, setting.seed, setting, (None, given), shown)
        session.ledger.refute(name, f"{shown.sentence} ({where})", recipe)
    session.restore(guilty)
    return _difference(setting, session, call)


def _difference(setting: Setting, session: Session, call: Call, *, fresh: bool = False) -> Difference | Outcome | None:
    """Compare one call of the whole model; it is built anew where definitions were restored since."""
    if not fresh and len(session.ledger.open()) == len(session.ledger.records):
        return _run(setting.pair, setting, session, call)
    made = build(setting.subject, setting.seed, session)
    if not isinstance(made, Pair):
        return made
    pair = made.cast(getattr(torch, setting.dtype))
    with pair.mode(setting.training, 0.0 if setting.training else weights.RATE):
        return _run(pair, setting, session, call)


def _run(pair: Pair, setting: Setting, session: Session, call: Call) -> Difference | Outcome | None:
    plan = setting.plan(recorded=not setting.brief)
    sides = module_sides(pair, "", "", session)
    found = compare_runs(sides, call, plan, session)
    if not isinstance(found, Difference):
        return found
    if setting.dtype != "float32" and _rounding_only(sides, call, plan):
        return execute(sides.theirs, call, plan)
    if reason := left_out(found, sides, call, plan, session):
        name = f"{setting.subject.name} as a whole, {setting.mode} mode, {setting.dtype}"
        session.ledger.skip(f"{name}, is left out: {reason}")
        return None
    return found


def _rounding_only(sides: Sides, call: Call, plan: Plan) -> bool:
    """In half precision, errors pile up over layers: the whole model is judged by its error's overall size.

    The original's error is also that with parameters which are off by one rounding: where two experts are nearly tied,
    rounding decides between them.
    """
    exact = execute(sides.exact(False), call, replace(plan, dtype=torch.float64))
    after = execute(sides.theirs, call, plan)
    if _no_worse_than(execute(sides.ours, call, plan), after, exact):
        return True
    for seed in range(_JITTERED):
        with weights.changed(sides.ours.module, weights.off_by_one_rounding(seed)):
            before = execute(sides.ours, call, plan)
        if _no_worse_than(before, after, exact):
            return True
    return False


def _no_worse_than(before: Outcome, after: Outcome, exact: Outcome) -> bool:
    """Whether a result is no further from the exact one than another, but for twice its error and a few roundings."""
    if exact.error or before.error or after.error or list(before.outputs) != list(after.outputs):
        return False
    if after.backward_error or set(after.overwritten) - set(before.overwritten):
        return False
    for path, value in before.outputs.items():
        other = after.outputs.get(path)
        if isinstance(value, torch.Tensor):
            if not _no_worse(value, other, exact.outputs.get(path)):
                return False
        elif is_state(path) and value != other:
            return False
    return _gradients_no_worse(before.gradients or {}, after.gradients or {}, exact.gradients or {})


def _gradients_no_worse(before: Mapping[str, Any], after: Mapping[str, Any], exact: Mapping[str, Any]) -> bool:
    """Whether gradients are no further off than the original's, all parameters taken together.

    One expert that is chosen otherwise by rounding changes the gradients of a router alone; a gradient that is wrong
    shows where its definition is compared by itself.
    """
    own, new, count = 0.0, 0.0, 0
    for path, value in before.items():
        other, truth = after.get(path), exact.get(path)
        if not isinstance(value, torch.Tensor):
            continue
        if not isinstance(other, torch.Tensor) or not isinstance(truth, torch.Tensor):
            return False
        if value.shape != other.shape or value.dtype != other.dtype or is_noise(value, truth):
            return False
        size = float(truth.norm())
        if not size and float(other.double().norm()) > 2 * float(value.double().norm()):
            return False
        if size:
            own += (float((value.double() - truth).norm()) / size) ** 2
            new += (float((other.double() - truth).norm()) / size) ** 2
            count += 1
    rounding = 2 * max((torch.finfo(v.dtype).eps for v in before.values() if isinstance(v, torch.Tensor)), default=0.0)
    return bool(new**0.5 <= 2 * own**0.5 + rounding * count**0.5)


def _no_worse(before: Any, after: Any, exact: Any) -> bool:
    if not isinstance(after, torch.Tensor) or not isinstance(exact, torch.Tensor):
        return False
    if before.shape != after.shape or before.dtype != after.dtype:
        return False
    if not before.is_floating_point():
        return bool(torch.equal(before, after))
    if is_noise(before, exact):
        return False
    own, new = (before.double() - exact).norm(), (after.double() - exact).norm()
    return bool(new <= 2 * own + 2 * torch.finfo(before.dtype).eps * exact.double().norm())


def _credit(setting: Setting, session: Session, call: Call, outcome: Outcome, recorded: frozenset[str]) -> None:
    """Count a whole-model comparison for every definition that took part in it."""
    for change in session.changes:
        record = session.ledger.records[change.definition]
        ran = change.definition in recorded or not session.tracer.gaps(change)
        if ran and not record.refuted:
            record.wholes += 1
            count(record, setting, call, outcome)
