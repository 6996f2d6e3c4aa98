"""Run one call on both versions and compare what a caller observes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from regraft.verify.child import tree, weights
from regraft.verify.child.checks.attributes import ATTRIBUTES
from regraft.verify.child.checks.values import EXTREME, VALUES
from regraft.verify.child.compare import (
    ERROR_RATIO,
    HALVES,
    ROUNDINGS,
    Difference,
    Largest,
    distance,
    is_noise,
)
from regraft.verify.child.ledger import Record
from regraft.verify.child.observe import first_reordered_pair
from regraft.verify.child.pair import Pair
from regraft.verify.child.record import Recorded
from regraft.verify.child.replay import (
    AUTOCAST,
    Outcome,
    Plan,
    Target,
    execute,
    unsteady_paths,
    without_paths,
)
from regraft.verify.child.session import Session
from regraft.verify.child.setting import Setting
from regraft.verify.child.state import is_state
from regraft.verify.child.tree import Call
from regraft.verify.child.variants import ALTERED, AS_RECORDED, LAID_OUT, off_by_one_rounding
from regraft.verify.types import ORDER

ZERO = 1e-12  # part of the largest gradient up to which a float64 gradient counts as zero
_JITTERED = 3  # runs of the original with other roundings of its parameters
_FAR_APART = 0.05  # part of the largest value, in half precision
RUNS = 3  # of the original against itself, before a difference is held against the changed version


@dataclass(frozen=True, slots=True)
class Sides:
    """The two sides of a comparison: the original, its counterpart in the changed version, and on
    demand either in float64.

    `exact_original` takes a flag: True copies weights anew, because they are altered for a while.
    """

    definition: str
    original: Target
    changed: Target
    exact_original: Callable[[bool], Target]
    exact_changed: Callable[[], Target]


def sides_of(entry: Recorded, setting: Setting, session: Session) -> Sides:
    """Return both sides of a recorded call, of a module or of a function of the file."""
    pair, path, name = setting.pair, entry.path, entry.definition
    if path is not None:
        return module_sides(pair, path, name, session)
    original, changed, effects = session.original, session.changed, session.strict
    old_function, new_function = getattr(original, name), getattr(changed, name)
    return Sides(
        name,
        Target(pair.original, "", old_function, original, effects),
        Target(pair.changed, "", new_function, changed, effects),
        lambda fresh: Target(pair.exact(fresh=fresh), "", old_function, original, effects),
        lambda: Target(pair.cast(torch.float64).changed, "", new_function, changed, effects),
    )


def module_sides(pair: Pair, path: str, name: str, session: Session) -> Sides:
    """Return both sides of the module at `path`; `name` is its definition, "" for a whole model."""
    original, changed, effects = session.original, session.changed, session.strict
    return Sides(
        name,
        Target(pair.original, path, None, original, effects),
        Target(pair.changed, path, None, changed, effects),
        lambda fresh: Target(pair.exact(fresh=fresh), path, None, original, effects),
        lambda: Target(pair.cast(torch.float64).changed, path, None, changed, effects),
    )


def _is_altered(call: Call) -> bool:
    """Return whether the models have other parameters or attributes while a call runs."""
    return call.label in ALTERED or call.beyond == ATTRIBUTES


def compare_runs(
    sides: Sides, call: Call, plan: Plan, session: Session
) -> Difference | Outcome | None:
    """Return a difference, or the changed version's equal outcome, or None where the original does
    not run."""
    ledger, name = session.ledger, sides.definition
    with ledger.step("original", name, call.label), session.trace_original() as forget:
        original_outcome = execute(sides.original, call, plan)
    if original_outcome.error is not None:
        forget()
        # not every module runs under these conditions
        if call.label not in LAID_OUT and not call.beyond and not plan.mode:
            ledger.skip(
                f"{name}, {call.label}: the original raises {type(original_outcome.error).__name__}"
            )
        return None
    with session.trace_changed(name, call.label):
        changed_outcome = execute(sides.changed, call, plan)
    exact_outcomes: list[Outcome] = []

    def truth() -> Outcome:
        """Return the original's outcome in float64, run once."""
        if not exact_outcomes:
            with ledger.step("truth", name, call.label):
                target = sides.exact_original(_is_altered(call))
                exact_outcomes.append(
                    execute(target, call, replace(plan, dtype=torch.float64, mode=""))
                )
        return exact_outcomes[0]

    def jittered() -> Outcome:
        """Return the original's outcome for inputs, and in half precision parameters, that are off
        by one rounding."""
        farthest = execute(sides.original, off_by_one_rounding(call), plan)
        is_half_precision = any(
            isinstance(value, torch.Tensor) and value.dtype in HALVES
            for value in original_outcome.outputs.values()
        )
        if not is_half_precision or sides.original.module is None:
            return farthest
        for seed in range(_JITTERED):  # in half precision layers round, too
            with weights.change_parameters(
                sides.original.module, weights.off_by_one_rounding(seed)
            ):
                rounded = execute(sides.original, off_by_one_rounding(call), plan)
            gradients = _farther_results(
                original_outcome.gradients or {}, farthest.gradients or {}, rounded.gradients or {}
            )
            farthest = replace(
                farthest,
                outputs=_farther_results(
                    original_outcome.outputs, farthest.outputs, rounded.outputs
                ),
                gradients=gradients,
            )
        return farthest

    largest = ledger.records[name].largest if name in ledger.records else Largest()
    if (
        plan.twice
        and original_outcome.second is not None
        and (loss := _missing_derivative(changed_outcome))
    ):
        ledger.records[name].given_up.add(loss)
        return changed_outcome
    strict = call.label in (AS_RECORDED, *LAID_OUT) or call.beyond not in ("", VALUES, EXTREME)
    difference = session.judge(
        original_outcome, changed_outcome, truth, largest, strict=strict, jittered=jittered
    )
    if difference is not None and is_state(difference.path):
        noise = unsteady_paths(original_outcome, execute(sides.original, call, plan))
        original_outcome, changed_outcome = (
            without_paths(original_outcome, noise),
            without_paths(changed_outcome, noise),
        )
        difference = session.judge(
            original_outcome, changed_outcome, truth, largest, strict=strict, jittered=jittered
        )
    if difference is None and (
        pair := first_reordered_pair(original_outcome.order, changed_outcome.order)
    ):
        loss = (
            f"{ORDER}: hooks on {pair[0]!r} run after those on {pair[1]!r}, in the original before"
            " them"
        )
        ledger.records[name].losses.add(loss)
    if difference is None:
        _challenge(Agreement(sides, call, plan, original_outcome, truth, jittered, strict), session)
    return difference or changed_outcome


def _farther_results(
    reference: Mapping[str, Any], first: Mapping[str, Any], second: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return, by path, the value of `first` or `second` that lies farther from the reference."""
    farther = dict(first)
    for path, value in reference.items():
        results = [
            result
            for result in (value, first.get(path), second.get(path))
            if isinstance(result, torch.Tensor)
        ]
        if len(results) < 3 or len({result.shape for result in results}) > 1:
            continue
        if distance(results[0], results[2])[0] > distance(results[0], results[1])[0]:
            farther[path] = results[2]
    return farther


@dataclass(frozen=True, slots=True)
class Agreement:
    """A comparison that found no difference: the sides, the call and the way to run, and the
    original's outcome."""

    sides: Sides
    call: Call
    plan: Plan
    original_outcome: Outcome
    truth: Callable[[], Outcome]
    jittered: Callable[[], Outcome]
    strict: bool


def _challenge(agreement: Agreement, session: Session) -> None:
    """Run mutants in place of the changed version through an equal comparison; those that differ
    are killed."""
    if session.mutants is None or session.planted or agreement.plan.twice:
        return
    plan = replace(agreement.plan, repeat=False)
    original_outcome = replace(agreement.original_outcome, again={}, gradients_again=None)
    for mutant in session.mutants.open(agreement.sides.definition, tree.structure(agreement.call)):
        with session.plant(mutant), session.trace_changed(mutant.definition, ""):
            mutant_outcome = execute(agreement.sides.changed, agreement.call, plan)
        mutant.killed = isinstance(
            session.judge(
                original_outcome,
                mutant_outcome,
                agreement.truth,
                Largest(),
                strict=agreement.strict,
                jittered=agreement.jittered,
            ),
            Difference,
        )


def _missing_derivative(outcome: Outcome) -> str:
    """Return in words the second derivatives that a library's kernel does not offer by its own
    account, or ""."""
    text = str(outcome.backward_error or "")
    kernel = re.match(r"derivative for (\S+) is not implemented", text)
    return f"second derivatives ({kernel[1]} has none)" if kernel else ""


def reason_to_leave_out(
    difference: Difference, sides: Sides, call: Call, plan: Plan, session: Session
) -> str:
    """Return why a difference is no evidence against the changed version, or "" where it is
    evidence."""
    if _is_noise_in_original(difference.path, sides, call, plan):
        return (
            "the original's own result has nothing to do with the exact one in this number format"
        )
    if _is_rounding_only(difference, sides, call, plan):
        return "the gradient is nothing but rounding in both versions"
    if _differs_from_itself(sides, call, plan, session):
        return "the original gives other values each time"
    return ""


def _is_noise_in_original(path: str, sides: Sides, call: Call, plan: Plan) -> bool:
    """Return whether a half-precision value, or an output that its gradient depends on, is noise
    already in the original.
    """
    original_outcome, changed_outcome = (
        execute(sides.original, call, plan),
        execute(sides.changed, call, plan),
    )
    exact_outcome = execute(
        sides.exact_original(_is_altered(call)), call, replace(plan, dtype=torch.float64, mode="")
    )
    if original_outcome.error or changed_outcome.error or exact_outcome.error:
        return False
    original_values, changed_values, exact_values = (
        {
            **outcome.outputs,
            **((outcome.gradients or {}) if path not in original_outcome.outputs else {}),
        }
        for outcome in (original_outcome, changed_outcome, exact_outcome)
    )
    value, counterpart = original_values.get(path), changed_values.get(path)
    if not isinstance(value, torch.Tensor) or not isinstance(counterpart, torch.Tensor):
        return False
    if (
        value.dtype not in HALVES
        or value.dtype != counterpart.dtype
        or value.shape != counterpart.shape
    ):
        return False
    results = (
        (result, changed_outcome.outputs.get(name))
        for name, result in original_outcome.outputs.items()
    )
    if path not in original_outcome.outputs and any(_is_far_apart(*pair) for pair in results):
        return True
    return any(
        is_noise(original_values[name], exact_values.get(name))
        for name in {path, *original_outcome.outputs}
    )


def _is_far_apart(value: Any, counterpart: Any) -> bool:
    """Return whether rounding alone took two results far apart, as at a saturated softmax:
    gradients say nothing there.
    """
    if (
        not isinstance(value, torch.Tensor)
        or not isinstance(counterpart, torch.Tensor)
        or value.shape != counterpart.shape
    ):
        return False
    return value.is_floating_point() and distance(value, counterpart)[1] > _FAR_APART


def _is_rounding_only(difference: Difference, sides: Sides, call: Call, plan: Plan) -> bool:
    """Return whether a gradient that differs is zero in both versions if computed in float64, and
    small beside the other gradients.

    Terms that cancel exactly in one order of summation leave rounding in another: softmax over one
    position, say.
    """

    def gradients(target: Target, plan: Plan) -> Mapping[str, Any]:
        """Return the first or second derivatives of a run."""
        outcome = execute(target, call, plan)
        return (outcome.second if plan.twice else outcome.gradients) or {}

    wide_plan = replace(plan, dtype=torch.float64, mode="")
    exact_gradients, original_gradients = (
        gradients(sides.exact_original(_is_altered(call)), wide_plan),
        gradients(sides.original, plan),
    )
    exact_changed_gradient = gradients(sides.exact_changed(), wide_plan).get(difference.path)
    sizes = {
        name: float(v.abs().max())
        for name, v in exact_gradients.items()
        if isinstance(v, torch.Tensor) and v.numel()
    }
    if not {difference.path} <= sizes.keys() & original_gradients.keys() or not isinstance(
        exact_changed_gradient, torch.Tensor
    ):
        return False
    scale = max(sizes.values())
    is_zero = ZERO * scale >= max(sizes[difference.path], float(exact_changed_gradient.abs().max()))
    dtype = torch.bfloat16 if plan.mode == AUTOCAST else original_gradients[difference.path].dtype
    rounding = ERROR_RATIO * ROUNDINGS["gradients"] * torch.finfo(dtype).eps
    return is_zero and difference.absolute <= rounding * scale


def _differs_from_itself(sides: Sides, call: Call, plan: Plan, session: Session) -> bool:
    """Return whether the original differs from itself in one of a few comparisons: it reads
    uninitialised memory."""
    same_sides = replace(sides, changed=sides.original, definition="")
    return any(
        isinstance(compare_runs(same_sides, call, plan, session), Difference) for _ in range(RUNS)
    )


def count_comparison(
    record: Record, setting: Setting, call: Call, outcome: Outcome, mode: str = ""
) -> None:
    """Add a comparison without a difference to the evidence of a definition."""
    if not setting.subject.once:
        record.models.add(setting.subject.name)
    record.drivers.add(setting.subject.driver)
    record.modes.add(setting.mode)
    record.dtypes.add(setting.dtype)
    record.seeds.add(setting.seed)
    if call.label not in LAID_OUT and not call.beyond:
        record.shapes.add(str(tree.shapes(call)))
    record.gradients += outcome.gradients is not None
    devices = {
        value.device.type for value in outcome.outputs.values() if isinstance(value, torch.Tensor)
    }
    record.domain.setdefault("devices", set()).update(devices)
    if call.beyond:
        record.domain.setdefault(call.beyond, set()).add(call.label)
    if mode:
        record.domain.setdefault("modes", set()).add(mode)
