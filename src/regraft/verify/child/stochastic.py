"""Compare what is random: dropout with a rate above zero, in training."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import torch

from regraft.verify.child import tree
from regraft.verify.child.compare import Difference, Largest, close
from regraft.verify.child.replay import Outcome, Plan, Target, cotangent, execute, judge
from regraft.verify.child.tree import Call

# Chance that two equal distributions are called different in one comparison: every test below uses its share.
FALSE_ALARM = 1e-6
SAMPLES = 256
FEWEST_SAMPLES = 64
SECONDS = 2.0
ELEMENTS = 4096
_STEP = 1e-2
_GRADIENT_ERROR = 0.1


def compare_random(original: Target, changed: Target, call: Call, largest: Largest) -> tuple[Difference | None, str]:
    """Compare two runs with dropout on; also say how: "deterministic", "same random numbers" or "distribution"."""
    plan = Plan(seed=1)
    first, second = execute(original, call, plan), execute(original, call, replace(plan, seed=2))
    if first.error is not None:
        return None, "the original does not run"
    theirs = execute(changed, call, plan)
    other = execute(changed, call, replace(plan, seed=2))
    found = judge(first, theirs, Outcome, largest, strict=False)
    if found is None and judge(second, other, Outcome, largest, strict=False) is None:
        return None, "deterministic" if _same(first, second) else "same random numbers"
    if theirs.error is not None:
        return found, "error"
    if _same(first, second):
        if _same(theirs, other):
            return None, "deterministic"  # values are the business of the comparison without dropout
        return Difference("", "in training the changed version is random, the original is not"), "deterministic"
    return _distributions(original, changed, call) or _backward(original, changed, call), "distribution"


def _same(a: Outcome, b: Outcome) -> bool:
    return all(not isinstance(v, torch.Tensor) or close(v, b.outputs.get(k, v)) for k, v in a.outputs.items())


def _distributions(original: Target, changed: Target, call: Call) -> Difference | None:
    started = time.monotonic()
    execute(original, call, Plan(gradients=False))
    cost = max(1e-5, time.monotonic() - started)
    count = max(FEWEST_SAMPLES, min(SAMPLES, int(SECONDS / cost)))
    before = _sample(original, call, range(count))
    after = _sample(changed, call, range(count, 2 * count))
    tests = max(1, len(before))
    for path, values in before.items():
        if path not in after or after[path].shape != values.shape:
            return Difference(path, f"in training {path} is missing or has another shape")
        found = _differs(values, after[path], FALSE_ALARM / tests)
        if found:
            return Difference(path, f"in training with dropout {path} has another distribution: {found}")
    return None


def _sample(target: Target, call: Call, seeds: range) -> dict[str, Any]:
    rows: dict[str, list[Any]] = {}
    for seed in seeds:
        for path, value in execute(target, call, Plan(seed=seed, gradients=False)).outputs.items():
            if isinstance(value, torch.Tensor) and value.is_floating_point() and not path.startswith("buffer "):
                rows.setdefault(path, []).append(value.double().flatten()[:ELEMENTS])
    return {path: torch.stack(values) for path, values in rows.items()}


def _differs(a: Any, b: Any, false_alarm: float) -> str:
    """Test means of statistics, element by element and pooled over the tensor; samples are independent runs."""
    centre = torch.cat([a, b]).mean(0)
    pooled_energy = torch.cat([(a - centre) ** 2, (b - centre) ** 2]).mean()
    statistics: tuple[tuple[str, Callable[[Any], Any]], ...] = (
        ("mean", lambda x: x),
        ("variance", lambda x: (x - centre) ** 2),
        ("share of zeros", lambda x: (x == 0).double()),
        ("overall mean", lambda x: x.mean(1, keepdim=True)),
        ("overall variance", lambda x: ((x - centre) ** 2).mean(1, keepdim=True)),
        ("overall share of zeros", lambda x: (x == 0).double().mean(1, keepdim=True)),
        ("spread between runs", lambda x: (((x - centre) ** 2).mean(1, keepdim=True) - pooled_energy) ** 2),
    )
    for name, statistic in statistics:
        left, right = statistic(a), statistic(b)
        limit = NormalDist().inv_cdf(1 - false_alarm / (2 * len(statistics) * left.shape[1]))
        gap, error = _score(left, right)
        worst = int((gap / error).argmax())
        if float(gap[worst] / error[worst]) > limit:
            ours, theirs = float(left[:, worst].mean()), float(right[:, worst].mean())
            return f"{name} {theirs:.4g} where the original has {ours:.4g}"
    return ""


def _score(left: Any, right: Any) -> tuple[Any, Any]:
    """Return the gap of the means and its standard error, the error kept above rounding."""
    count = left.shape[0]
    error = ((left.var(0) + right.var(0)) / count).sqrt()
    floor = 1e-5 * torch.maximum(left.abs().amax(), right.abs().amax()) / math.sqrt(count) + 1e-12
    return (left.mean(0) - right.mean(0)).abs(), error + floor


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
