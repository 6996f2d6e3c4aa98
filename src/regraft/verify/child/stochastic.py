"""Compare random results: dropout with a rate above zero, in training."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import torch

from regraft.verify.child import tree
from regraft.verify.child.compare import Difference, Largest, close
from regraft.verify.child.isolated import Judge
from regraft.verify.child.replay import (
    Outcome,
    Plan,
    Target,
    cotangent,
    execute,
    unsteady_paths,
    without_paths,
)
from regraft.verify.child.state import is_state
from regraft.verify.child.tree import Call

# Chance that two equal distributions are called different in one comparison. A first set of runs
# only points at the statistic that looks worst; that one alone is then tested on fresh runs. Under
# equal distributions the differences between their paired runs are symmetric, so by Hoeffding's
# inequality the sum divided by the root of its squares exceeds sqrt(2 log(2 / FALSE_ALARM)) with at
# most this chance, whatever the distribution and the number of runs.
FALSE_ALARM = 1e-6
# Chance that the first set points at a statistic where nothing differs, and fresh runs are made in
# vain.
SUSPICION = 1e-2
SAMPLES = 256
FEWEST_SAMPLES = 64
SECONDS = 2.0
ELEMENTS = 4096
JOINT_ELEMENTS = 1024
AGAIN = "second call: "
_STEP = 1e-2
_GRADIENT_ERROR = 0.1


def compare_random(
    original: Target, changed: Target, call: Call, largest: Largest, judge: Judge
) -> tuple[Difference | None, str]:
    """Compare two runs with dropout on; return a difference or None, and the way of comparison.

    The way is "deterministic", "same random numbers" or "distribution"; "seeded" or "error" where a
    difference shows before; or a sentence where the original does not run.
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
        original_first.random_state_hash != original_second.random_state_hash
        and changed_first.random_state_hash == changed_second.random_state_hash
    ):
        return (
            Difference(
                "", "in training the changed version seeds the random numbers: they do not go on"
            ),
            "seeded",
        )
    difference = judge(original_first, changed_first, Outcome, largest, strict=False)
    if (
        difference is None
        and judge(original_second, changed_second, Outcome, largest, strict=False) is None
    ):
        return None, (
            "deterministic"
            if _has_close_results(original_first, original_second)
            else "same random numbers"
        )
    if changed_first.error is not None:
        return difference, "error"
    if _has_close_results(original_first, original_second):
        if _has_close_results(changed_first, changed_second):
            return None, "deterministic"  # the comparison without dropout judges the values
        return (
            Difference("", "in training the changed version is random, the original is not"),
            "deterministic",
        )
    return (
        _compare_distributions(original, changed, call, noise)
        or _check_backward(original, changed, call),
        "distribution",
    )


def _has_close_results(first: Outcome, second: Outcome) -> bool:
    """Return whether all tensors that both outcomes show are close."""
    pairs = [(value, second.outputs.get(path, value)) for path, value in first.outputs.items()] + [
        (value, second.again.get(path, value)) for path, value in first.again.items()
    ]
    return all(
        not isinstance(value, torch.Tensor) or close(value, counterpart)
        for value, counterpart in pairs
    )


Statistic = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class _Test:
    """A statistic of several columns per run, to be compared in the means of its columns.

    `statistic` returns the columns for some runs, `worst` is the column whose means are furthest
    apart. `surprise` is its score, first as if it were the only column, then as it is.
    """

    path: str
    name: str
    statistic: Statistic
    worst: int
    surprise: tuple[float, float]


def _compare_distributions(
    original: Target, changed: Target, call: Call, noise: frozenset[str] = frozenset()
) -> Difference | None:
    """Compare the distributions of all values that a call and its repetition return, each alone and
    all jointly."""
    start = time.monotonic()
    execute(original, call, Plan(gradients=False, repeat=True))
    seconds_per_run = max(1e-5, time.monotonic() - start)
    count = max(FEWEST_SAMPLES, min(SAMPLES, int(SECONDS / seconds_per_run)))
    original_sample = _sample(original, call, range(count), noise)
    changed_sample = _sample(changed, call, range(count, 2 * count), noise)
    for path, values in original_sample.items():
        if path not in changed_sample or changed_sample[path].shape != values.shape:
            return Difference(path, f"in training {path} is missing or has another shape")
    suspect = (
        _suspect(original_sample, {path: changed_sample[path] for path in original_sample})
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
    finding = _confirmed(
        suspect, original_fresh, {path: changed_fresh[path] for path in original_fresh}
    )
    if not finding:
        return None
    return Difference(
        suspect.path, f"in training with dropout {suspect.path} has another distribution: {finding}"
    )


def _sample(target: Target, call: Call, seeds: range, noise: frozenset[str]) -> dict[str, Any]:
    """Return a row of values per run for every floating result that all runs return in one
    shape."""
    rows: dict[str, list[Any]] = {}
    for seed in seeds:
        # the repetition takes the next seed
        outcome = execute(target, call, Plan(seed=2 * seed, gradients=False, repeat=True))
        results = {
            **outcome.outputs,
            **{f"{AGAIN}{path}": value for path, value in outcome.again.items()},
        }
        for path, value in results.items():
            is_floating = (
                isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 0
            )
            if (
                is_floating
                and not path.startswith("buffer ")
                and path.removeprefix(AGAIN) not in noise
            ):
                rows.setdefault(path, []).append(value.double().flatten()[:ELEMENTS])
    rows_of_one_shape = {
        path: values for path, values in rows.items() if len({value.shape for value in values}) == 1
    }
    return {
        path: torch.stack(values)
        for path, values in rows_of_one_shape.items()
        if len(values) == len(seeds)
    }


def _suspect(original_sample: Mapping[str, Any], changed_sample: Mapping[str, Any]) -> _Test | None:
    """Return the test whose means are furthest apart, or None if equal distributions would explain
    the distance."""
    tests = [
        test
        for path in original_sample
        for test in _tests_of_result(path, original_sample, changed_sample)
    ]
    tests.append(_joint_test(original_sample, changed_sample))
    worst = max(tests, key=lambda test: test.surprise)
    limit = -NormalDist().inv_cdf(SUSPICION / (2 * len(tests)))
    return worst if worst.surprise[0] > limit else None


def _tests_of_result(
    path: str, original_sample: Mapping[str, Any], changed_sample: Mapping[str, Any]
) -> Iterator[_Test]:
    """Yield the tests of one result: element by element and pooled over the tensor."""
    centre = torch.cat([original_sample[path], changed_sample[path]]).mean(0)
    energy = torch.cat(
        [(original_sample[path] - centre) ** 2, (changed_sample[path] - centre) ** 2]
    ).mean()
    statistics: tuple[tuple[str, Callable[[Any], Any]], ...] = (
        ("mean", lambda x: x),
        ("variance", lambda x: (x - centre) ** 2),
        ("share of zeros", lambda x: (x == 0).double()),
        ("overall mean", lambda x: x.mean(1, keepdim=True)),
        ("overall variance", lambda x: ((x - centre) ** 2).mean(1, keepdim=True)),
        ("overall share of zeros", lambda x: (x == 0).double().mean(1, keepdim=True)),
        (
            "spread between runs",
            lambda x: (((x - centre) ** 2).mean(1, keepdim=True) - energy) ** 2,
        ),
    )
    for name, statistic in statistics:
        yield _worst_column(
            path, name, _statistic_of(path, statistic), original_sample, changed_sample
        )


def _statistic_of(path: str, statistic: Callable[[Any], Any]) -> Statistic:
    """Return a statistic of all rows that looks at one result."""
    return lambda rows: statistic(rows[path])


def _worst_column(
    path: str,
    name: str,
    statistic: Statistic,
    original_sample: Mapping[str, Any],
    changed_sample: Mapping[str, Any],
) -> _Test:
    """Return the test of a statistic, with the column whose means are furthest apart."""
    original_columns, changed_columns = statistic(original_sample), statistic(changed_sample)
    scores = _scores(original_columns, changed_columns)
    worst = int(scores.argmax())
    score = float(scores[worst])
    chance = min(1.0, max(1e-15, scores.numel() * math.erfc(score / math.sqrt(2))))
    return _Test(path, name, statistic, worst, (-NormalDist().inv_cdf(chance / 2), score))


def _scores(original_columns: Any, changed_columns: Any) -> Any:
    """Return the distance of the means of each column in standard errors; the error is at least
    that of rounding."""
    error = (
        (original_columns.var(0) + changed_columns.var(0)) / len(original_columns)
    ).sqrt() + _rounding(original_columns, changed_columns) / math.sqrt(len(original_columns))
    return (original_columns.mean(0) - changed_columns.mean(0)).abs() / error


def _rounding(original_columns: Any, changed_columns: Any) -> Any:
    """Return the size of roundings in columns."""
    return 1e-5 * torch.maximum(original_columns.abs().amax(), changed_columns.abs().amax()) + 1e-12


def _joint_test(original_sample: Mapping[str, Any], changed_sample: Mapping[str, Any]) -> _Test:
    """Return a test of how values vary together: a mask that has become shared, or is shared no
    longer, changes no single value's distribution.

    A quarter of the runs shows the difference between the covariances of the versions; the other
    runs are compared along this difference, a quadratic form.
    """
    original_rows, changed_rows = _thinned_rows(original_sample), _thinned_rows(changed_sample)
    centre = torch.cat([original_rows, changed_rows]).mean(0)
    spread = torch.cat([original_rows, changed_rows]).std(0)
    scale = spread + 1e-3 * spread.amax() + 1e-12
    pilot = max(2, len(original_rows) // 4)
    original_scaled, changed_scaled = (
        (original_rows - centre) / scale,
        (changed_rows - centre) / scale,
    )
    form = (
        changed_scaled[:pilot].T @ changed_scaled[:pilot]
        - original_scaled[:pilot].T @ original_scaled[:pilot]
    ) / pilot

    def statistic(rows: Mapping[str, Any]) -> Any:
        """Return the quadratic form for each run, as one column."""
        values = (_thinned_rows(rows) - centre) / scale
        return ((values @ form) * values).sum(1, keepdim=True)

    remaining_runs = [
        {path: rows[pilot:] for path, rows in sample.items()}
        for sample in (original_sample, changed_sample)
    ]
    return _worst_column(
        next(iter(original_sample)),
        "covariances along their difference",
        statistic,
        *remaining_runs,
    )


def _thinned_rows(rows: Mapping[str, Any]) -> Any:
    """Return all results of each run in one row of at most JOINT_ELEMENTS values, thinned out
    evenly."""
    values = torch.cat(list(rows.values()), 1)
    return values[:, :: math.ceil(values.shape[1] / JOINT_ELEMENTS)]


def _confirmed(
    test: _Test, original_sample: Mapping[str, Any], changed_sample: Mapping[str, Any]
) -> str:
    """Apply one test to fresh runs, as many of either version; return in words how they differ, or
    ""."""
    original_values, changed_values = (
        test.statistic(rows)[:, test.worst] for rows in (original_sample, changed_sample)
    )
    gaps = original_values - changed_values
    floor = math.sqrt(len(gaps)) * float(_rounding(original_values, changed_values))
    score = abs(float(gaps.sum())) / (float((gaps**2).sum().sqrt()) + floor)
    if score <= math.sqrt(2 * math.log(2 / FALSE_ALARM)):
        return ""
    return (
        f"{test.name} {float(changed_values.mean()):.4g} where the original has"
        f" {float(original_values.mean()):.4g}"
    )


def _check_backward(original: Target, changed: Target, call: Call) -> Difference | None:
    """Check that backward drops what forward dropped: the gradient predicts finite differences
    under one seed."""
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
    """Return the relative error of a directional derivative against a finite difference; None where
    inputs have no gradients.
    """
    plan = Plan(seed=seed)
    outcome = execute(target, call, plan)
    names = [name for name in outcome.gradients or {} if name.startswith("input ")]
    gradients = {name: (outcome.gradients or {})[name] for name in names}
    gradients = {name: value for name, value in gradients.items() if value is not None}
    if not gradients:
        return None
    directions = {
        name: cotangent(f"direction {name}{seed}", value) for name, value in gradients.items()
    }
    predicted = sum(
        float((gradients[name].double() * directions[name].double()).sum()) for name in gradients
    )
    value_above = _projection(execute(target, _shift_inputs(call, directions, _STEP), plan))
    value_below = _projection(execute(target, _shift_inputs(call, directions, -_STEP), plan))
    gradient_norm = math.sqrt(
        sum(float((value.double() ** 2).sum()) for value in gradients.values())
    )
    return (
        abs((value_above - value_below) / (2 * _STEP) - predicted) / gradient_norm
        if gradient_norm
        else None
    )


def _projection(outcome: Outcome) -> float:
    """Return the product of an outcome's floating results with fixed random directions, summed."""
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
    """Return a call with its inputs moved along directions, times `step`."""
    count = 0

    def shift(leaf: Any) -> Any:
        """Return an argument, moved if it is an input with a direction."""
        nonlocal count
        if not isinstance(leaf, torch.Tensor):
            return leaf
        name = f"input {count}"
        count += 1
        return leaf + step * directions[name] if name in directions else leaf

    return Call(
        tree.map_leaves(call.args, shift), tree.map_leaves(dict(call.kwargs), shift), call.label
    )
