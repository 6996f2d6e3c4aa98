"""Compare what is random: dropout with a rate above zero, in training."""

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
from regraft.verify.child.replay import Outcome, Plan, Target, cotangent, execute, unsteady, without
from regraft.verify.child.state import is_state
from regraft.verify.child.tree import Call

# Chance that two equal distributions are called different in one comparison. A first set of runs only points at the
# statistic that looks worst; that one alone is then tested on fresh runs. Under equal distributions the differences
# between their paired runs are symmetric, so by Hoeffding's inequality the sum divided by the root of its squares
# exceeds sqrt(2 log(2 / FALSE_ALARM)) with at most this chance, whatever the distribution and the number of runs.
FALSE_ALARM = 1e-6
# Chance that the first set points at anything where nothing differs, and fresh runs are made in vain.
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
    """Compare two runs with dropout on; also say how: "deterministic", "same random numbers" or "distribution"."""
    plan = Plan(seed=1, repeat=True)
    first, second = execute(original, call, plan), execute(original, call, replace(plan, seed=3))
    if first.error is not None:
        return None, "the original does not run"
    theirs = execute(changed, call, plan)
    other = execute(changed, call, replace(plan, seed=3))
    noise = frozenset[str]()
    if any(map(is_state, first.outputs)):
        noise = unsteady(first, execute(original, call, plan))
        first, second, theirs, other = (without(outcome, noise) for outcome in (first, second, theirs, other))
    if first.left != second.left and theirs.left == other.left:
        return Difference("", "in training the changed version seeds the random numbers: they do not go on"), "seeded"
    found = judge(first, theirs, Outcome, largest, strict=False)
    if found is None and judge(second, other, Outcome, largest, strict=False) is None:
        return None, "deterministic" if _same(first, second) else "same random numbers"
    if theirs.error is not None:
        return found, "error"
    if _same(first, second):
        if _same(theirs, other):
            return None, "deterministic"  # values are the business of the comparison without dropout
        return Difference("", "in training the changed version is random, the original is not"), "deterministic"
    return _distributions(original, changed, call, noise) or _backward(original, changed, call), "distribution"


def _same(a: Outcome, b: Outcome) -> bool:
    pairs = [(v, b.outputs.get(k, v)) for k, v in a.outputs.items()] + [
        (v, b.again.get(k, v)) for k, v in a.again.items()
    ]
    return all(not isinstance(v, torch.Tensor) or close(v, w) for v, w in pairs)


Statistic = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class _Test:
    """Numbers per run, to be compared in their means: `statistic` gives a column for each, `worst` is the column.

    `surprise` is its score as if it were the only column, then the score itself.
    """

    path: str
    name: str
    statistic: Statistic
    worst: int
    surprise: tuple[float, float]


def _distributions(
    original: Target, changed: Target, call: Call, noise: frozenset[str] = frozenset()
) -> Difference | None:
    """Compare the distribution of all values that a call and its repetition show, each and jointly."""
    started = time.monotonic()
    execute(original, call, Plan(gradients=False, repeat=True))
    cost = max(1e-5, time.monotonic() - started)
    count = max(FEWEST_SAMPLES, min(SAMPLES, int(SECONDS / cost)))
    before = _sample(original, call, range(count), noise)
    after = _sample(changed, call, range(count, 2 * count), noise)
    for path, values in before.items():
        if path not in after or after[path].shape != values.shape:
            return Difference(path, f"in training {path} is missing or has another shape")
    suspect = _suspect(before, {path: after[path] for path in before}) if before else None
    if suspect is None:
        return None
    again = _sample(original, call, range(2 * count, 4 * count), noise)
    other = _sample(changed, call, range(4 * count, 6 * count), noise)
    if list(again) != list(before):
        return None  # the original itself shows a value in some runs only: no statistic of all values is defined
    for path in again:
        if path not in other:
            return Difference(path, f"in training {path} is missing in some runs")
    found = _confirmed(suspect, again, {path: other[path] for path in again})
    if not found:
        return None
    return Difference(suspect.path, f"in training with dropout {suspect.path} has another distribution: {found}")


def _sample(target: Target, call: Call, seeds: range, noise: frozenset[str]) -> dict[str, Any]:
    """Return a row of values per run for every floating result that all runs show in one shape."""
    rows: dict[str, list[Any]] = {}
    for seed in seeds:
        outcome = execute(target, call, Plan(seed=2 * seed, gradients=False, repeat=True))  # the repetition takes one
        shown = {**outcome.outputs, **{f"{AGAIN}{path}": value for path, value in outcome.again.items()}}
        for path, value in shown.items():
            floating = isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 0
            if floating and not path.startswith("buffer ") and path.removeprefix(AGAIN) not in noise:
                rows.setdefault(path, []).append(value.double().flatten()[:ELEMENTS])
    steady = {path: values for path, values in rows.items() if len({value.shape for value in values}) == 1}
    return {path: torch.stack(values) for path, values in steady.items() if len(values) == len(seeds)}


def _suspect(before: Mapping[str, Any], after: Mapping[str, Any]) -> _Test | None:
    """Return the statistic whose means are furthest apart, if that would be a surprise under equal distributions."""
    tests = [test for path in before for test in _single(path, before, after)]
    tests.append(_joint(before, after))
    worst = max(tests, key=lambda test: test.surprise)
    limit = -NormalDist().inv_cdf(SUSPICION / (2 * len(tests)))
    return worst if worst.surprise[0] > limit else None


def _single(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[_Test]:
    """Yield tests of one result: element by element and pooled over the tensor."""
    centre = torch.cat([before[path], after[path]]).mean(0)
    energy = torch.cat([(before[path] - centre) ** 2, (after[path] - centre) ** 2]).mean()
    statistics: tuple[tuple[str, Callable[[Any], Any]], ...] = (
        ("mean", lambda x: x),
        ("variance", lambda x: (x - centre) ** 2),
        ("share of zeros", lambda x: (x == 0).double()),
        ("overall mean", lambda x: x.mean(1, keepdim=True)),
        ("overall variance", lambda x: ((x - centre) ** 2).mean(1, keepdim=True)),
        ("overall share of zeros", lambda x: (x == 0).double().mean(1, keepdim=True)),
        ("spread between runs", lambda x: (((x - centre) ** 2).mean(1, keepdim=True) - energy) ** 2),
    )
    for name, statistic in statistics:
        yield _test(path, name, _of(path, statistic), before, after)


def _of(path: str, statistic: Callable[[Any], Any]) -> Statistic:
    return lambda rows: statistic(rows[path])


def _test(path: str, name: str, statistic: Statistic, before: Mapping[str, Any], after: Mapping[str, Any]) -> _Test:
    """Find the worst column."""
    left, right = statistic(before), statistic(after)
    scores = _scores(left, right)
    worst = int(scores.argmax())
    score = float(scores[worst])
    chance = min(1.0, max(1e-15, scores.numel() * math.erfc(score / math.sqrt(2))))
    return _Test(path, name, statistic, worst, (-NormalDist().inv_cdf(chance / 2), score))


def _scores(left: Any, right: Any) -> Any:
    """Return the gaps of the columns' means in standard errors, the error kept above rounding."""
    error = ((left.var(0) + right.var(0)) / len(left)).sqrt() + _rounding(left, right) / math.sqrt(len(left))
    return (left.mean(0) - right.mean(0)).abs() / error


def _rounding(left: Any, right: Any) -> Any:
    return 1e-5 * torch.maximum(left.abs().amax(), right.abs().amax()) + 1e-12


def _joint(before: Mapping[str, Any], after: Mapping[str, Any]) -> _Test:
    """Test how values vary together: a mask that is shared, or no longer, leaves each value's distribution alone.

    A quarter of the runs shows how the covariances of the versions differ; along this difference, a quadratic form,
    the other runs are compared.
    """
    ours, theirs = _flat(before), _flat(after)
    centre = torch.cat([ours, theirs]).mean(0)
    spread = torch.cat([ours, theirs]).std(0)
    scale = spread + 1e-3 * spread.amax() + 1e-12
    pilot = max(2, len(ours) // 4)
    left, right = (ours - centre) / scale, (theirs - centre) / scale
    form = (right[:pilot].T @ right[:pilot] - left[:pilot].T @ left[:pilot]) / pilot

    def statistic(rows: Mapping[str, Any]) -> Any:
        values = (_flat(rows) - centre) / scale
        return ((values @ form) * values).sum(1, keepdim=True)

    rest = [{path: rows[pilot:] for path, rows in shown.items()} for shown in (before, after)]
    return _test(next(iter(before)), "covariances along their difference", statistic, *rest)


def _flat(rows: Mapping[str, Any]) -> Any:
    """Return all results of a run in one row, thinned out evenly where they are many."""
    values = torch.cat(list(rows.values()), 1)
    return values[:, :: math.ceil(values.shape[1] / JOINT_ELEMENTS)]


def _confirmed(test: _Test, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Test one statistic on fresh runs, as many of either version; say what differs, or nothing."""
    left, right = (test.statistic(rows)[:, test.worst] for rows in (before, after))
    gaps = left - right
    floor = math.sqrt(len(gaps)) * float(_rounding(left, right))
    score = abs(float(gaps.sum())) / (float((gaps**2).sum().sqrt()) + floor)
    if score <= math.sqrt(2 * math.log(2 / FALSE_ALARM)):
        return ""
    return f"{test.name} {float(right.mean()):.4g} where the original has {float(left.mean()):.4g}"


def _backward(original: Target, changed: Target, call: Call) -> Difference | None:
    """Check that backward drops what forward dropped: the gradient predicts finite differences under one seed."""
    misses = 0
    for seed in range(3):
        right = _prediction_error(original, call, seed)
        if right is None or right > _GRADIENT_ERROR:
            return None
        wrong = _prediction_error(changed, call, seed)
        misses += wrong is None or wrong > 2 * _GRADIENT_ERROR
    if misses < 2:
        return None
    return Difference("", "in training the gradients do not belong to the outputs: backward drops other elements")


def _prediction_error(target: Target, call: Call, seed: int) -> float | None:
    plan = Plan(seed=seed)
    outcome = execute(target, call, plan)
    names = [name for name in outcome.gradients or {} if name.startswith("input ")]
    slopes = {name: (outcome.gradients or {})[name] for name in names}
    slopes = {name: value for name, value in slopes.items() if value is not None}
    if not slopes:
        return None
    directions = {name: cotangent(f"direction {name}{seed}", value) for name, value in slopes.items()}
    predicted = sum(float((slopes[name].double() * directions[name].double()).sum()) for name in slopes)
    high = _project(execute(target, _shifted(call, directions, _STEP), plan))
    low = _project(execute(target, _shifted(call, directions, -_STEP), plan))
    size = math.sqrt(sum(float((value.double() ** 2).sum()) for value in slopes.values()))
    return abs((high - low) / (2 * _STEP) - predicted) / size if size else None


def _project(outcome: Outcome) -> float:
    values = {p: v for p, v in outcome.outputs.items() if isinstance(v, torch.Tensor) and v.is_floating_point()}
    kept = {p: v for p, v in values.items() if not p.startswith("buffer ")}
    return sum(float((value.double() * cotangent(path, value).double()).sum()) for path, value in kept.items())


def _shifted(call: Call, directions: Mapping[str, Any], step: float) -> Call:
    count = 0

    def shift(leaf: Any) -> Any:
        nonlocal count
        if not isinstance(leaf, torch.Tensor):
            return leaf
        name = f"input {count}"
        count += 1
        return leaf + step * directions[name] if name in directions else leaf

    return Call(tree.map_leaves(call.args, shift), tree.map_leaves(dict(call.kwargs), shift), call.label)
