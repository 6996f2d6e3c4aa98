"""Medians with intervals, and when they decide a comparison."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.95
FEWEST = 6  # with fewer pairs there is no interval of that level
MARGIN = 0.02  # of the speed: an interval is looked at after every pair, so it has to be this clear


@dataclass(frozen=True, slots=True)
class Interval:
    """A median, and the ends of an interval that holds the true one with a probability of at least
    LEVEL."""

    low: float
    median: float
    high: float

    def inverse(self) -> Interval:
        """Return the interval of the reciprocal values."""
        return Interval(1 / self.high, 1 / self.median, 1 / self.low)


def interval(values: Sequence[float]) -> Interval:
    """The median of independent values and its confidence interval by order statistics.

    The k-th smallest and k-th largest value, with the largest k for which P(Binomial(n, ½) < k) ≤
    (1 - LEVEL) / 2: exact for every continuous distribution, nothing is resampled or assumed normal
    (David and Nagaraja, Order Statistics, 3rd edition, section 7.1). Raises ValueError for fewer
    than FEWEST values.
    """
    ordered, n = sorted(values), len(values)
    if n < FEWEST:
        raise ValueError(f"an interval needs {FEWEST} values, not {n}")
    k, below = 0, 1.0
    while below <= (1 - LEVEL) / 2 * 2**n:
        k += 1
        below += math.comb(n, k)
    return Interval(ordered[k - 1], statistics.median(ordered), ordered[n - k])


def gain_is_settled(speed: Interval) -> bool:
    """Return whether further pairs are not needed to say whether a step is faster.

    It is when the whole interval is beyond the margin, or below it, or when half of the pairs show
    no gain. The last keeps steps without any gain from being measured to the end; a gain within the
    noise of the measurements may be missed by it, and none is invented.
    """
    return speed.low > 1 + MARGIN or speed.high < 1 + MARGIN or speed.median <= 1


def is_decided(
    speed: Interval,
    *,
    faster: float = 1 + MARGIN,
    slower: float = 1 - MARGIN,
    margin: float = MARGIN,
) -> bool:
    """Return whether further pairs would not change what an interval says: the new step is faster
    or slower than these bounds, or it is as fast, by no more than the margin."""
    is_equal = speed.low > 1 - margin and speed.high < 1 + margin
    return speed.low > faster or speed.high < slower or is_equal
