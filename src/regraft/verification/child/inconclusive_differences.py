"""Tell which differences between both versions are no evidence against the changed one, by running
them again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from regraft.execution.compare import are_alike
from regraft.verification.child import weights
from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_comparison import (
    Sides,
    compare_runs,
    has_exact_parameters,
    is_altered,
    is_strict,
)
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_outcomes import Outcome, Plan, Target
from regraft.verification.child.call_variants import inputs_off_by_rounding
from regraft.verification.child.comparison_terms import HALVES, Difference
from regraft.verification.child.float64_runs import execute_exactly
from regraft.verification.child.operation_noise import OperationNoise
from regraft.verification.child.parameter_alterations import LOW
from regraft.verification.child.rounding import (
    ERROR_RATIO,
    GROSS_IF_SATURATED,
    ROUNDINGS,
    is_noise,
)
from regraft.verification.child.session import Session
from regraft.verification.child.tensor_distance import measure
from regraft.verification.child.torch_modes import AUTOCAST

ZERO = 1e-12  # part of the largest gradient up to which a float64 gradient counts as zero
_FAR_APART = 0.05  # part of the largest value, in half precision
_EQUAL_IN_FLOAT64 = 1e-6  # part of the largest gradient, for scores of 6e4
_OUT_OF_MEMORY = ("MemoryError", "can't allocate memory", "CUDA out of memory")
FURTHER = 32  # runs of the original with other roundings
_MOVES = 2.0  # how many times as far as these runs move a number the versions may lie apart
RUNS = 3  # of the original against itself, before a difference is held against the changed version


def reason_to_leave_out(
    difference: Difference, sides: Sides, call: Call, plan: Plan, session: Session
) -> str:
    """Return why a difference is no evidence against the changed version, for which both versions
    run again, or "" where it is evidence: the limit of memory, noise in half precision already in
    the original, a gradient that is nothing but rounding, a saturated softmax, roundings that move
    the original as far, or an original that differs from itself."""
    if any(words in difference.sentence for words in _OUT_OF_MEMORY):
        return "the limit of memory was reached"
    if _is_noise_in_original(difference.path, sides, call, plan):
        return (
            "the original's own result has nothing to do with the exact one in this number format"
        )
    if _is_rounding_only(difference, sides, call, plan):
        return "the gradient is nothing but rounding in both versions"
    if _is_lost_by_saturation(difference, sides, call, plan, session):
        return "the gradients of both versions are equal in float64"
    if _is_within_roundings(difference, sides, call, plan):
        return "other roundings move the original's own result as far"
    if _differs_from_itself(sides, call, plan, session):
        return "the original gives other values each time"
    return ""


def _is_noise_in_original(path: str, sides: Sides, call: Call, plan: Plan) -> bool:
    """Return whether a half-precision value, or an output that its gradient depends on, is noise
    already in the original. False for other formats, and where one of the runs raises."""
    original_outcome = execute(sides.original, call, plan)
    changed_outcome = execute(sides.changed, call, plan)
    exact_outcome = _exact_outcome(sides, call, plan, original_outcome)
    if original_outcome.error or changed_outcome.error or exact_outcome.error:
        return False
    is_gradient = path not in original_outcome.outputs
    original_values, changed_values, exact_values = (
        _results(outcome, with_gradients=is_gradient)
        for outcome in (original_outcome, changed_outcome, exact_outcome)
    )
    if not _are_like_halves(original_values.get(path), changed_values.get(path)):
        return False
    if is_gradient and any(
        _is_far_apart(result, changed_outcome.outputs.get(name))
        for name, result in original_outcome.outputs.items()
    ):
        return True
    return any(
        is_noise(original_values[name], exact_values.get(name))
        for name in {path, *original_outcome.outputs}
    )


def _results(outcome: Outcome, *, with_gradients: bool) -> dict[str, Any]:
    """Return the outputs of a run by path, with its gradients if `with_gradients`."""
    gradients = (outcome.gradients or {}) if with_gradients else {}
    return {**outcome.outputs, **gradients}


def _are_like_halves(value: Any, counterpart: Any) -> bool:
    """Return whether two values are tensors of one half-precision format and one shape."""
    return are_alike(value, counterpart) and value.dtype in HALVES


def _is_far_apart(value: Any, counterpart: Any) -> bool:
    """Return whether two floating-point tensors of equal shape lie further apart than `_FAR_APART`
    of the largest value, as rounding alone puts them at a saturated softmax: gradients say nothing
    there."""
    if not are_alike(value, counterpart, dtype=False):
        return False
    return value.is_floating_point() and measure(value, counterpart).relative > _FAR_APART


def _is_rounding_only(difference: Difference, sides: Sides, call: Call, plan: Plan) -> bool:
    """Return whether the value that differs is a gradient that is zero in both versions if computed
    in float64, and small beside the largest gradient. False where a run lacks this gradient.

    Terms that cancel exactly in one order of summation leave rounding in another: softmax over one
    position, say.
    """
    original_outcome = execute(sides.original, call, plan)
    original_gradients = _gradients(original_outcome, plan)
    exact_gradients, exact_changed_gradients = _exact_gradients(sides, call, plan, original_outcome)
    exact_changed_gradient = exact_changed_gradients.get(difference.path)
    sizes = {
        name: float(v.abs().max())
        for name, v in exact_gradients.items()
        if isinstance(v, torch.Tensor) and v.numel()
    }
    original_gradient = original_gradients.get(difference.path)
    if (
        difference.path not in sizes
        or not isinstance(original_gradient, torch.Tensor)
        or not isinstance(exact_changed_gradient, torch.Tensor)
    ):
        return False
    scale = max(sizes.values())
    is_zero = ZERO * scale >= max(sizes[difference.path], float(exact_changed_gradient.abs().max()))
    dtype = torch.bfloat16 if plan.mode == AUTOCAST else original_gradient.dtype
    rounding = ERROR_RATIO * ROUNDINGS["gradients"] * torch.finfo(dtype).eps
    return is_zero and difference.absolute <= rounding * scale


def _exact_outcome(sides: Sides, call: Call, plan: Plan, original_outcome: Outcome) -> Outcome:
    """Return the outcome of the original in float64, given that in its own number format."""
    exact = sides.exact_original(is_altered(call))
    return execute_exactly(exact, sides.original, call, plan, draws=original_outcome.draws)


def _exact_gradients(
    sides: Sides, call: Call, plan: Plan, original_outcome: Outcome
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the derivatives of the original and of the changed version in float64 by path, {} for
    none, given the original's outcome in its own number format."""
    exact_original = _exact_outcome(sides, call, plan, original_outcome)
    exact_changed = execute_exactly(
        sides.exact_changed(), sides.changed, call, plan, draws=original_outcome.draws
    )
    return _gradients(exact_original, plan), _gradients(exact_changed, plan)


def _gradients(outcome: Outcome, plan: Plan) -> Mapping[str, Any]:
    """Return the first or second derivatives of a run by path, {} for none."""
    return (outcome.second if plan.twice else outcome.gradients) or {}


def _is_lost_by_saturation(
    difference: Difference, sides: Sides, call: Call, plan: Plan, session: Session
) -> bool:
    """Return whether tested rules made the change, biases of -100 saturate the functions of the
    model, and the value that differs is a gradient that both versions compute alike in float64.

    Kernels of attention lose the gradients of scores around 6e4 in float32, which the softmax of
    the original keeps; no model sees such scores.
    """
    if not session.by_rules or call.label != LOW:
        return False
    original_outcome = execute(sides.original, call, plan)
    exact_gradient, exact_changed_gradient = (
        gradients.get(difference.path)
        for gradients in _exact_gradients(sides, call, plan, original_outcome)
    )
    if not are_alike(exact_gradient, exact_changed_gradient):
        return False
    gap = measure(exact_gradient, exact_changed_gradient)
    return gap.all_finite and gap.relative <= _EQUAL_IN_FLOAT64


def _is_within_roundings(difference: Difference, sides: Sides, call: Call, plan: Plan) -> bool:
    """Return whether the versions lie apart in no number by more than `_MOVES` times what inputs,
    parameters and operations that are off by one rounding move this number of the original in
    `FURTHER` runs, and a few roundings of the largest. False for calls that are compared strictly,
    and for parameters that no rounding moves.

    Such a move is seldom among the few that other comparisons look at: large numbers leave a
    softmax between two scores that are nearly equal. A run that moves a number by more than
    `GROSS_IF_SATURATED` of the largest one has taken another decision, and does not count.
    """
    module, path = sides.original.module, difference.path
    if is_strict(call) or has_exact_parameters(call) or module is None or not difference.absolute:
        return False
    original_outcome = execute(sides.original, call, plan)
    is_gradient = path not in original_outcome.outputs
    changed_outcome = execute(sides.changed, call, plan)
    value: Any = _results(original_outcome, with_gradients=is_gradient).get(path)
    changed_value: Any = _results(changed_outcome, with_gradients=is_gradient).get(path)
    if not are_alike(value, changed_value) or not value.is_floating_point():
        return False
    if not measure(value, changed_value).all_finite:
        return False
    kind = "gradients" if is_gradient else "outputs"
    roundings = ROUNDINGS[kind] * torch.finfo(value.dtype).eps * float(value.abs().max())
    allowed = torch.full_like(value, roundings, dtype=torch.float64)
    gaps = (value.double() - changed_value.double()).abs()
    for moved in _moved_results(path, sides.original, call, plan, is_gradient=is_gradient):
        if are_alike(value, moved) and measure(value, moved).relative <= GROSS_IF_SATURATED:
            moves = (value.double() - moved.double()).abs()
            allowed = torch.maximum(allowed, _MOVES * moves + roundings)
        if bool((gaps <= allowed).all()):
            return True
    return False


def _moved_results(
    path: str, original: Target, call: Call, plan: Plan, *, is_gradient: bool
) -> Iterator[Any]:
    """Yield the value at a path of `FURTHER` runs of the original's module, each with inputs,
    parameters and operations that are off by one rounding; None where a run has no such value. The
    parameters are restored."""
    dtype = torch.bfloat16 if plan.mode == AUTOCAST else None
    for seed in range(FURTHER):
        change = weights.parameters_off_by_rounding(seed, dtype)
        with weights.change_parameters(original.module, change), OperationNoise(seed):
            outcome = execute(original, inputs_off_by_rounding(call, seed), plan)
        yield _results(outcome, with_gradients=is_gradient).get(path)


def _differs_from_itself(sides: Sides, call: Call, plan: Plan, session: Session) -> bool:
    """Return whether the original differs from itself in at least one of `RUNS` comparisons, as
    code does that reads uninitialised memory."""
    original_twice = replace(sides, changed=sides.original, definition="")
    return any(
        isinstance(compare_runs(original_twice, call, plan, session), Difference)
        for _ in range(RUNS)
    )
