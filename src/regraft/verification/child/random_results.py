"""Compare both versions where results are random: in training, with dropout rates above zero."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch

from regraft.verification.child import call_arguments
from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_gradients import cotangent
from regraft.verification.child.call_outcomes import Outcome, Plan, Target
from regraft.verification.child.comparison_terms import Difference, Largest, Rigour
from regraft.verification.child.distribution_tests import (
    describe_confirmed_difference,
    find_suspicious_statistic,
)
from regraft.verification.child.judge_process import Judge
from regraft.verification.child.outcome_comparison import unsteady_paths, without_paths
from regraft.verification.child.result_comparison import close
from regraft.verification.child.state_watch import is_state

SAMPLES = 256
FEWEST_SAMPLES = 64
SECONDS = 2.0
ELEMENTS = 4096
SECOND_CALL = "second call: "
_STEP = 1e-2
_GRADIENT_ERROR = 0.1
_GRADIENT_ROUNDING = 1e-2  # of the largest value, what roundings may move without a float64 run

_SEEDS_NUMBERS = Difference(
    "", "in training the changed version seeds the random numbers: they do not go on"
)
_IS_RANDOM = Difference("", "in training the changed version is random, the original is not")


def compare_random(
    original: Target, changed: Target, call: Call, largest: Largest, judge: Judge
) -> tuple[Difference | None, str]:
    """Compare two runs with dropout on; return a difference or None, and the way of comparison.
    Differences of equal results are added to `largest`.

    The way is "deterministic", "same random numbers" or "distribution"; "seeded" or "error" where a
    difference shows before; or "the original does not run", without a difference. Random results
    whose values differ under the same seed are compared by distribution, then by their gradients;
    where only gradients differ grossly, these are the difference.
    """
    plan = Plan(seed=1, repeat=True)
    original_first, original_second = (
        execute(original, call, plan),
        execute(original, call, replace(plan, seed=3)),
    )
    if original_first.error is not None:
        return None, "the original does not run"
    changed_first = execute(changed, call, plan)
    changed_second = execute(changed, call, replace(plan, seed=3))
    noise = frozenset[str]()
    if any(map(is_state, original_first.outputs)):
        noise = unsteady_paths(original_first, execute(original, call, plan))
        original_first, original_second, changed_first, changed_second = (
            without_paths(outcome, noise)
            for outcome in (original_first, original_second, changed_first, changed_second)
        )
    if (
        changed_first.error is None
        and original_first.random_state_hash != original_second.random_state_hash
        and changed_first.random_state_hash == changed_second.random_state_hash
    ):
        return _SEEDS_NUMBERS, "seeded"
    new_sources = {*changed_first.moved, *changed_second.moved} - {
        *original_first.moved,
        *original_second.moved,
    }
    if new_sources:
        return _other_source(min(new_sources)), "seeded"
    run_pairs = ((original_first, changed_first), (original_second, changed_second))
    difference = _first_difference(run_pairs, largest, judge)
    if difference is None:
        is_certain = _has_close_results(original_first, original_second)
        return None, "deterministic" if is_certain else "same random numbers"
    if changed_first.error is not None:
        return difference, "error"
    if _has_close_results(original_first, original_second):
        # the comparison without dropout judges the values
        is_random = not _has_close_results(changed_first, changed_second)
        return _IS_RANDOM if is_random else None, "deterministic"
    if _is_of_gradients_alone(difference, run_pairs, largest, judge):
        # the same numbers were drawn: the gradients are of others, or of another function
        return difference, "same random numbers"
    difference = _compare_distributions(original, changed, call, noise) or _check_backward(
        original, changed, call
    )
    return difference, "distribution"


def _is_of_gradients_alone(
    difference: Difference,
    run_pairs: Iterable[tuple[Outcome, Outcome]],
    largest: Largest,
    judge: Judge,
) -> bool:
    """Return whether a difference between pairs of runs is more than rounding, and the pairs are
    equal without what their backward passes gave."""
    if 0.0 < difference.relative < _GRADIENT_ROUNDING:
        return False
    results_alone = (
        (_without_gradients(original), _without_gradients(changed))
        for original, changed in run_pairs
    )
    return _first_difference(results_alone, largest, judge) is None


def _first_difference(
    run_pairs: Iterable[tuple[Outcome, Outcome]], largest: Largest, judge: Judge
) -> Difference | None:
    """Return the first difference between an original's and a changed version's run, one pair for
    each seed; None where all pairs are equal. Differences of equal results are added to
    `largest`."""
    differences = (
        judge(original, changed, Outcome, largest, Rigour(strict=False))
        for original, changed in run_pairs
    )
    return next(filter(None, differences), None)


def _without_gradients(outcome: Outcome) -> Outcome:
    """Return an outcome without what its backward pass gave."""
    return replace(outcome, gradients=None, repeated_gradients=None, backward_error=None)


def _other_source(name: str) -> Difference:
    """Return the difference of a version that draws from random numbers which the original leaves
    alone: they have a seed of their own, and gradient checkpointing repeats PyTorch's alone."""
    return Difference(
        "",
        f"in training the changed version draws random numbers of {name}, the original does not",
    )


def _has_close_results(first: Outcome, second: Outcome) -> bool:
    """Return whether all tensors that both outcomes have, in the first and the second call, are
    close; values that are no tensors do not count."""
    pairs = [(value, second.outputs.get(path, value)) for path, value in first.outputs.items()] + [
        (value, second.repeated.get(path, value)) for path, value in first.repeated.items()
    ]
    return all(
        not isinstance(value, torch.Tensor) or close(value, counterpart)
        for value, counterpart in pairs
    )


def _compare_distributions(
    original: Target, changed: Target, call: Call, noise: frozenset[str] = frozenset()
) -> Difference | None:
    """Compare the distributions of all values that a call and its repetition return, each alone and
    all jointly; return the difference that fresh runs confirm, or None. A result that is missing or
    has another shape is a difference, too.

    The number of runs lies between FEWEST_SAMPLES and SAMPLES, for about SECONDS per sample. None
    also where the original returns a value in some runs only.
    """
    count = _affordable_count(original, call)
    original_sample = _sample(original, call, range(count), noise)
    changed_sample = _sample(changed, call, range(count, 2 * count), noise)
    for path, values in original_sample.items():
        if path not in changed_sample or changed_sample[path].shape != values.shape:
            return Difference(path, f"in training {path} is missing or has another shape")
    suspect = (
        find_suspicious_statistic(
            original_sample, {path: changed_sample[path] for path in original_sample}
        )
        if original_sample
        else None
    )
    if suspect is None:
        return None
    original_fresh = _sample(original, call, range(2 * count, 4 * count), noise)
    changed_fresh = _sample(changed, call, range(4 * count, 6 * count), noise)
    if list(original_fresh) != list(original_sample):
        # the original itself shows a value in some runs only: no statistic of all values is defined
        return None
    for path in original_fresh:
        if path not in changed_fresh:
            return Difference(path, f"in training {path} is missing in some runs")
    finding = describe_confirmed_difference(
        suspect, original_fresh, {path: changed_fresh[path] for path in original_fresh}
    )
    if not finding:
        return None
    return Difference(
        suspect.path, f"in training with dropout {suspect.path} has another distribution: {finding}"
    )


def _affordable_count(original: Target, call: Call) -> int:
    """Return the number of runs for a sample of a call that takes about SECONDS, between
    FEWEST_SAMPLES and SAMPLES, by the time of a run."""
    start = time.monotonic()
    execute(original, call, Plan(gradients=False, repeat=True))
    seconds_per_run = max(1e-5, time.monotonic() - start)
    return max(FEWEST_SAMPLES, min(SAMPLES, int(SECONDS / seconds_per_run)))


def _sample(target: Target, call: Call, seeds: range, noise: frozenset[str]) -> dict[str, Any]:
    """Return by path a tensor of shape (runs, at most ELEMENTS values) for every floating result
    that all runs return in one shape, of the first and the repeated call (with SECOND_CALL before
    the path); without buffers and the paths in `noise`. Run number n has the seeds 2n and 2n +
    1."""
    rows: dict[str, list[Any]] = {}
    for seed in seeds:
        # the repetition takes the next seed
        outcome = execute(target, call, Plan(seed=2 * seed, gradients=False, repeat=True))
        results = {
            **outcome.outputs,
            **{f"{SECOND_CALL}{path}": value for path, value in outcome.repeated.items()},
        }
        for path, value in results.items():
            is_floating = (
                isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 0
            )
            if (
                is_floating
                and not path.startswith("buffer ")
                and path.removeprefix(SECOND_CALL) not in noise
            ):
                rows.setdefault(path, []).append(value.double().flatten()[:ELEMENTS])
    rows_of_equal_shape = {
        path: values for path, values in rows.items() if len({value.shape for value in values}) == 1
    }
    return {
        path: torch.stack(values)
        for path, values in rows_of_equal_shape.items()
        if len(values) == len(seeds)
    }


def _check_backward(original: Target, changed: Target, call: Call) -> Difference | None:
    """Check that backward drops what forward dropped: the gradient predicts finite differences
    under one seed. Return a difference where the changed version's fails for at least two of three
    seeds.

    Return None otherwise, and where the original's gradient fails or is absent for a seed.
    """
    mismatches = 0
    for seed in range(3):
        original_error = _prediction_error(original, call, seed)
        if original_error is None or original_error > _GRADIENT_ERROR:
            return None
        changed_error = _prediction_error(changed, call, seed)
        mismatches += changed_error is None or changed_error > 2 * _GRADIENT_ERROR
    if mismatches < 2:
        return None
    return Difference(
        "", "in training the gradients do not belong to the outputs: backward drops other elements"
    )


def _prediction_error(target: Target, call: Call, seed: int) -> float | None:
    """Return the error of a directional derivative against a finite difference, relative to the
    norm of the gradient; None where inputs have no gradients, or only zeros."""
    plan = Plan(seed=seed)
    outcome = execute(target, call, plan)
    gradients = {
        name: value
        for name, value in (outcome.gradients or {}).items()
        if name.startswith("input ") and value is not None
    }
    if not gradients:
        return None
    directions = {
        name: cotangent(f"direction {name}{seed}", value) for name, value in gradients.items()
    }
    predicted = sum(
        float((gradients[name].double() * directions[name].double()).sum()) for name in gradients
    )
    value_above = _project_results(execute(target, _shift_inputs(call, directions, _STEP), plan))
    value_below = _project_results(execute(target, _shift_inputs(call, directions, -_STEP), plan))
    squares = (float((value.double() ** 2).sum()) for value in gradients.values())
    gradient_norm = math.sqrt(sum(squares))
    if not gradient_norm:
        return None
    return abs((value_above - value_below) / (2 * _STEP) - predicted) / gradient_norm


def _project_results(outcome: Outcome) -> float:
    """Return the sum over an outcome's floating results, buffers aside, of their products with
    fixed random directions."""
    values = {
        path: value
        for path, value in outcome.outputs.items()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
    }
    results = {path: value for path, value in values.items() if not path.startswith("buffer ")}
    return sum(
        float((value.double() * cotangent(path, value).double()).sum())
        for path, value in results.items()
    )


def _shift_inputs(call: Call, directions: Mapping[str, Any], step: float) -> Call:
    """Return a call with its tensors moved along the directions of their names ("input NUMBER"),
    times `step`; tensors without a direction stay."""
    count = 0

    def shift_leaf(leaf: Any) -> Any:
        """Return a tensor plus `step` times its direction, if it has one; other arguments as they
        are. Tensors are numbered in the order of these calls."""
        nonlocal count
        if not isinstance(leaf, torch.Tensor):
            return leaf
        name = f"input {count}"
        count += 1
        return leaf + step * directions[name] if name in directions else leaf

    return call_arguments.map_call(call, shift_leaf, call.label)
