"""Test statistically whether two samples of random results have one distribution."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import torch

# Chance that two equal distributions are called different in one comparison. A first set of runs
# only points at the statistic that looks worst; that one alone is then tested on fresh runs. Under
# equal distributions the differences between their paired runs are symmetric, so by Hoeffding's
# inequality the sum divided by the root of its squares exceeds sqrt(2 log(2 / FALSE_ALARM)) with at
# most this chance, whatever the distribution and the number of runs.
FALSE_ALARM = 1e-6
# Chance that the first set points at a statistic where nothing differs, and fresh runs are made in
# vain.
SUSPICION = 1e-2
JOINT_ELEMENTS = 1024

Statistic = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class DistributionTest:
    """A statistic of several columns per run, to be compared in the means of its columns.

    `statistic` returns the columns for some runs, as a tensor of shape (runs, columns); `worst` is
    the column whose means are furthest apart. `surprise` is its score in standard errors, first as
    if it were the only column, then as it is.
    """

    path: str
    name: str
    statistic: Statistic
    worst: int
    surprise: tuple[float, float]


def find_suspicious_statistic(
    original_sample: Mapping[str, Any], changed_sample: Mapping[str, Any]
) -> DistributionTest | None:
    """Return the test whose means are furthest apart, or None if equal distributions would explain
    the distance (up to a chance of SUSPICION). Samples hold by path a tensor of shape (runs,
    elements)."""
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
) -> Iterator[DistributionTest]:
    """Yield seven tests of a result: mean, variance and share of zeros of its elements, each for
    the element that differs most, the same three over the whole tensor, and the spread between
    runs."""
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
    """Return the statistic that applies `statistic` to the rows of the result at `path` alone."""
    return lambda rows: statistic(rows[path])


def _worst_column(
    path: str,
    name: str,
    statistic: Statistic,
    original_sample: Mapping[str, Any],
    changed_sample: Mapping[str, Any],
) -> DistributionTest:
    """Return the test of a statistic on two samples, with the column whose means are furthest
    apart."""
    original_columns, changed_columns = statistic(original_sample), statistic(changed_sample)
    scores = _scores(original_columns, changed_columns)
    worst = int(scores.argmax())
    score = float(scores[worst])
    chance = min(1.0, max(1e-15, scores.numel() * math.erfc(score / math.sqrt(2))))
    return DistributionTest(
        path, name, statistic, worst, (-NormalDist().inv_cdf(chance / 2), score)
    )


def _scores(original_columns: Any, changed_columns: Any) -> Any:
    """Return the distance between the means of each column, in standard errors, as a tensor of
    shape (columns,). The standard error includes that of rounding, and is never zero."""
    error = (
        (original_columns.var(0) + changed_columns.var(0)) / len(original_columns)
    ).sqrt() + _rounding(original_columns, changed_columns) / math.sqrt(len(original_columns))
    return (original_columns.mean(0) - changed_columns.mean(0)).abs() / error


def _rounding(original_columns: Any, changed_columns: Any) -> Any:
    """Return the size of roundings in columns, relative to the largest value of both, as a positive
    scalar tensor."""
    return 1e-5 * torch.maximum(original_columns.abs().amax(), changed_columns.abs().amax()) + 1e-12


def _joint_test(
    original_sample: Mapping[str, Any], changed_sample: Mapping[str, Any]
) -> DistributionTest:
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


def describe_confirmed_difference(
    test: DistributionTest, original_sample: Mapping[str, Any], changed_sample: Mapping[str, Any]
) -> str:
    """Apply a test to fresh runs, as many of either version; return in words how the means of its
    worst column differ, or "" where equal distributions explain it (up to a chance of
    FALSE_ALARM)."""
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
