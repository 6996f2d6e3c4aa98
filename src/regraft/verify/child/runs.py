"""Run one call on both sides and judge what a caller sees."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from regraft.verify.child import tree, weights
from regraft.verify.child.checks.attributes import ATTRIBUTES
from regraft.verify.child.checks.values import EXTREME, VALUES
from regraft.verify.child.compare import ERROR_RATIO, HALVES, ROUNDINGS, Difference, Largest, distance, is_noise
from regraft.verify.child.ledger import Record
from regraft.verify.child.observe import overtaken
from regraft.verify.child.pair import Pair
from regraft.verify.child.record import Recorded
from regraft.verify.child.replay import AUTOCAST, Outcome, Plan, Target, execute, unsteady, without
from regraft.verify.child.session import Session
from regraft.verify.child.setting import Setting
from regraft.verify.child.state import is_state
from regraft.verify.child.tree import Call
from regraft.verify.child.variants import ALTERED, AS_RECORDED, LAID_OUT, off_by_one_rounding
from regraft.verify.types import ORDER

ZERO = 1e-12  # of the largest gradient, in float64
_JITTERED = 3  # runs of the original with other roundings of its parameters
_PARTED = 0.05  # of the largest value, in half precision
RUNS = 3  # of the original against itself, before a difference is held against the changed version


@dataclass(frozen=True, slots=True)
class Sides:
    """What is compared: the original, its counterpart, and on demand either in float64."""

    definition: str
    ours: Target
    theirs: Target
    exact: Callable[[bool], Target]
    exact_theirs: Callable[[], Target]


def sides_of(entry: Recorded, setting: Setting, session: Session) -> Sides:
    pair, path, name = setting.pair, entry.path, entry.definition
    if path is not None:
        return module_sides(pair, path, name, session)
    before, after, effects = session.original, session.changed, session.strict
    ours, theirs = getattr(before, name), getattr(after, name)
    return Sides(
        name,
        Target(pair.original, "", ours, before, effects),
        Target(pair.changed, "", theirs, after, effects),
        lambda fresh: Target(pair.exact(fresh=fresh), "", ours, before, effects),
        lambda: Target(pair.cast(torch.float64).changed, "", theirs, after, effects),
    )


def module_sides(pair: Pair, path: str, name: str, session: Session) -> Sides:
    before, after, effects = session.original, session.changed, session.strict
    return Sides(
        name,
        Target(pair.original, path, None, before, effects),
        Target(pair.changed, path, None, after, effects),
        lambda fresh: Target(pair.exact(fresh=fresh), path, None, before, effects),
        lambda: Target(pair.cast(torch.float64).changed, path, None, after, effects),
    )


def _is_altered(call: Call) -> bool:
    """Whether the models have other parameters or attributes while a call runs."""
    return call.label in ALTERED or call.beyond == ATTRIBUTES


def compare_runs(sides: Sides, call: Call, plan: Plan, session: Session) -> Difference | Outcome | None:
    """Return a difference, or the changed version's equal outcome, or None where the original does not run."""
    ledger, name = session.ledger, sides.definition
    with ledger.step("original", name, call.label), session.traced_before() as forget:
        before = execute(sides.ours, call, plan)
    if before.error is not None:
        forget()
        if call.label not in LAID_OUT and not call.beyond and not plan.mode:  # not every module takes these
            ledger.skip(f"{name}, {call.label}: the original raises {type(before.error).__name__}")
        return None
    with session.traced(name, call.label):
        after = execute(sides.theirs, call, plan)
    memo: list[Outcome] = []

    def truth() -> Outcome:
        if not memo:
            with ledger.step("truth", name, call.label):
                target = sides.exact(_is_altered(call))
                memo.append(execute(target, call, replace(plan, dtype=torch.float64, mode="")))
        return memo[0]

    def jittered() -> Outcome:
        moved = execute(sides.ours, off_by_one_rounding(call), plan)
        halves = any(isinstance(value, torch.Tensor) and value.dtype in HALVES for value in before.outputs.values())
        if not halves or sides.ours.module is None:
            return moved
        for seed in range(_JITTERED):  # in half precision layers round, too
            with weights.changed(sides.ours.module, weights.off_by_one_rounding(seed)):
                again = execute(sides.ours, off_by_one_rounding(call), plan)
            gradients = _farther(before.gradients or {}, moved.gradients or {}, again.gradients or {})
            moved = replace(
                moved, outputs=_farther(before.outputs, moved.outputs, again.outputs), gradients=gradients
            )
        return moved

    largest = ledger.records[name].largest if name in ledger.records else Largest()
    if plan.twice and before.second is not None and (loss := _given_up(after)):
        ledger.records[name].given_up.add(loss)
        return after
    strict = call.label in (AS_RECORDED, *LAID_OUT) or call.beyond not in ("", VALUES, EXTREME)
    found = session.judge(before, after, truth, largest, strict=strict, jittered=jittered)
    if found is not None and is_state(found.path):
        noise = unsteady(before, execute(sides.ours, call, plan))
        before, after = without(before, noise), without(after, noise)
        found = session.judge(before, after, truth, largest, strict=strict, jittered=jittered)
    if found is None and (pair := overtaken(before.order, after.order)):
        loss = f"{ORDER}: hooks on {pair[0]!r} run after those on {pair[1]!r}, in the original before them"
        ledger.records[name].losses.add(loss)
    if found is None:
        _challenge(Agreement(sides, call, plan, before, truth, jittered, strict), session)
    return found or after


def _farther(
    before: Mapping[str, Any], first: Mapping[str, Any], second: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return, by path, that of two results which lies farther from another."""
    farther = dict(first)
    for path, value in before.items():
        results = [result for result in (value, first.get(path), second.get(path)) if isinstance(result, torch.Tensor)]
        if len(results) < 3 or len({result.shape for result in results}) > 1:
            continue
        if distance(results[0], results[2])[0] > distance(results[0], results[1])[0]:
            farther[path] = results[2]
    return farther


@dataclass(frozen=True, slots=True)
class Agreement:
    """A comparison that found no difference: what was compared, and the original's outcome."""

    sides: Sides
    call: Call
    plan: Plan
    before: Outcome
    truth: Callable[[], Outcome]
    jittered: Callable[[], Outcome]
    strict: bool


def _challenge(agreement: Agreement, session: Session) -> None:
    """Compare mutants of the changed version in its place: those that differ are killed."""
    if session.mutants is None or session.planted or agreement.plan.twice:
        return
    plan = replace(agreement.plan, repeat=False)
    before = replace(agreement.before, again={}, gradients_again=None)
    for mutant in session.mutants.open(agreement.sides.definition, tree.structure(agreement.call)):
        with session.plant(mutant), session.traced(mutant.definition, ""):
            after = execute(agreement.sides.theirs, agreement.call, plan)
        mutant.killed = isinstance(
            session.judge(
                before, after, agreement.truth, Largest(), strict=agreement.strict, jittered=agreement.jittered
            ),
            Difference,
        )


def _given_up(outcome: Outcome) -> str:
    """Return what a library's kernel does not offer by its own account: second derivatives, or nothing."""
    text = str(outcome.backward_error or "")
    kernel = re.match(r"derivative for (\S+) is not implemented", text)
    return f"second derivatives ({kernel[1]} has none)" if kernel else ""


def left_out(found: Difference, sides: Sides, call: Call, plan: Plan, session: Session) -> str:
    """Return why a difference says nothing about the changed version, or nothing where it does."""
    if _far_from_exact(found.path, sides, call, plan):
        return "the original's own result has nothing to do with the exact one in this number format"
    if _cancels(found, sides, call, plan):
        return "the gradient is nothing but rounding in both versions"
    if _differs_from_itself(sides, call, plan, session):
        return "the original gives other values each time"
    return ""


def _far_from_exact(path: str, sides: Sides, call: Call, plan: Plan) -> bool:
    """Whether a half-precision value, or an output that its gradient depends on, is noise already in the original."""
    before, after = execute(sides.ours, call, plan), execute(sides.theirs, call, plan)
    exact = execute(sides.exact(_is_altered(call)), call, replace(plan, dtype=torch.float64, mode=""))
    if before.error or after.error or exact.error:
        return False
    ours, theirs, truth = (
        {**seen.outputs, **((seen.gradients or {}) if path not in before.outputs else {})}
        for seen in (before, after, exact)
    )
    value, other = ours.get(path), theirs.get(path)
    if not isinstance(value, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    if value.dtype not in HALVES or value.dtype != other.dtype or value.shape != other.shape:
        return False
    results = ((result, after.outputs.get(name)) for name, result in before.outputs.items())
    if path not in before.outputs and any(_parted(*pair) for pair in results):
        return True
    return any(is_noise(ours[name], truth.get(name)) for name in {path, *before.outputs})


def _parted(value: Any, other: Any) -> bool:
    """Whether rounding alone took two results far apart, as at a saturated softmax: gradients say nothing there."""
    if not isinstance(value, torch.Tensor) or not isinstance(other, torch.Tensor) or value.shape != other.shape:
        return False
    return value.is_floating_point() and distance(value, other)[1] > _PARTED


def _cancels(found: Difference, sides: Sides, call: Call, plan: Plan) -> bool:
    """Whether a gradient that differs is zero in both versions if computed in float64, and small beside others.

    What cancels exactly in one order of summation leaves rounding in another: softmax over one position, say.
    """

    def gradients(target: Target, plan: Plan) -> Mapping[str, Any]:
        seen = execute(target, call, plan)
        return (seen.second if plan.twice else seen.gradients) or {}

    wide = replace(plan, dtype=torch.float64, mode="")
    exact, ours = gradients(sides.exact(_is_altered(call)), wide), gradients(sides.ours, plan)
    theirs = gradients(sides.exact_theirs(), wide).get(found.path)
    sizes = {name: float(v.abs().max()) for name, v in exact.items() if isinstance(v, torch.Tensor) and v.numel()}
    if not {found.path} <= sizes.keys() & ours.keys() or not isinstance(theirs, torch.Tensor):
        return False
    scale = max(sizes.values())
    nothing = ZERO * scale >= max(sizes[found.path], float(theirs.abs().max()))
    dtype = torch.bfloat16 if plan.mode == AUTOCAST else ours[found.path].dtype
    rounding = ERROR_RATIO * ROUNDINGS["gradients"] * torch.finfo(dtype).eps
    return nothing and found.absolute <= rounding * scale


def _differs_from_itself(sides: Sides, call: Call, plan: Plan, session: Session) -> bool:
    """Whether two of a few runs of the original differ as no two versions may: it reads memory that nobody wrote."""
    again = replace(sides, theirs=sides.ours, definition="")
    return any(isinstance(compare_runs(again, call, plan, session), Difference) for _ in range(RUNS))


def count(record: Record, setting: Setting, call: Call, outcome: Outcome, mode: str = "") -> None:
    if not setting.subject.once:
        record.models.add(setting.subject.name)
    record.drivers.add(setting.subject.driver)
    record.modes.add(setting.mode)
    record.dtypes.add(setting.dtype)
    record.seeds.add(setting.seed)
    if call.label not in LAID_OUT and not call.beyond:
        record.shapes.add(str(tree.shapes(call)))
    record.gradients += outcome.gradients is not None
    devices = {value.device.type for value in outcome.outputs.values() if isinstance(value, torch.Tensor)}
    record.domain.setdefault("devices", set()).update(devices)
    if call.beyond:
        record.domain.setdefault(call.beyond, set()).add(call.label)
    if mode:
        record.domain.setdefault("modes", set()).add(mode)
