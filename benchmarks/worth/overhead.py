"""What the ops of packs `adopter`, `torch` and `idioms` cost beside the operations that they end
in.

Each op is called at a size at which its operations take little time, in turn with these operations
themselves; the difference is what its decisions cost. A call that is too small for the fast path
ends in the operations that the op replaces (`small`), any other in those of its fast path (`fast`,
which REGRAFT_KERNELS=always demands here). The difference is compared with the time of the op at
the typical size of the rule's subject. Times are processor times on one thread, without gradients:
the median of many pairs, with the interval that holds the true number with a probability of 95%.

    python benchmarks/worth/overhead.py [--only REGEX] > benchmarks/results/op-overhead.txt

Exits with 1 where a difference is clearly above both limits: 2 µs, and 0.5% of the typical time.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from op_calls import CASES, Call, Calls, OpCase

from regraft.benchmarking.machine_name import machine
from regraft.benchmarking.median_intervals import Interval, interval
from regraft.source.garbage_collection import uncollected

LIMIT_SECONDS = 2e-6
LIMIT_SHARE = 0.005
SLICE = 5e-4  # seconds of one measurement of a tiny call
TYPICAL_SECONDS = 0.3  # the time for a typical call


@dataclass(frozen=True, slots=True)
class Overhead:
    """The seconds that a call of an op costs beside its operations, and those of a typical call."""

    path: str
    plain: float
    extra: Interval
    typical: float

    @property
    def is_too_large(self) -> bool:
        """Whether the whole interval is above both limits."""
        return self.extra.low > max(LIMIT_SECONDS, LIMIT_SHARE * self.typical)


def seconds(call: Call, repeats: int) -> float:
    """Return the processor time of a call, the mean of several."""
    start = time.process_time()
    for _ in range(repeats):
        call()
    return (time.process_time() - start) / repeats


def repeats_of(call: Call) -> int:
    """Return how many calls take the time of a measurement."""
    seconds(call, 20)
    return max(1, round(SLICE / max(seconds(call, 20), 1e-7)))


def difference(op: Call, plain: Call, rounds: int) -> tuple[float, Interval]:
    """Return the seconds of a plain call, and those that the op takes beyond it, from pairs that
    start with either in turn."""
    repeats = repeats_of(plain)
    repeats_of(op)
    extra, plain_seconds = [], []
    for round_number in range(rounds):
        order = (op, plain) if round_number % 2 else (plain, op)
        times = {call: seconds(call, repeats) for call in order}
        extra.append(times[op] - times[plain])
        plain_seconds.append(times[plain])
    return interval(plain_seconds).median, interval(extra)


def typical_seconds(case: OpCase) -> float:
    """Return the seconds of an op at its typical size: the least of several calls."""
    call = case.make(**case.typical).op
    started, times = time.perf_counter(), [seconds(call, 1)]
    while time.perf_counter() - started < TYPICAL_SECONDS or len(times) < 5:
        times.append(seconds(call, 1))
    return min(times)


def overheads(case: OpCase, rounds: int) -> Iterator[Overhead]:
    """Yield what an op costs where it ends in its fast path, and where it is too small for that."""
    typical = typical_seconds(case)
    calls: Calls = case.make(**case.least)
    os.environ["REGRAFT_KERNELS"] = "always"
    plain, extra = difference(calls.op, calls.fast, rounds)
    del os.environ["REGRAFT_KERNELS"]
    yield Overhead("fast", plain, extra, typical)
    calls = case.make(**case.tiny)
    if calls.small is not None:
        plain, extra = difference(calls.op, calls.small, rounds)
        yield Overhead("small", plain, extra, typical)


def line(op: str, overhead: Overhead) -> str:
    """Return a row of the table."""
    low, median, high = (
        1e6 * number for number in (overhead.extra.low, overhead.extra.median, overhead.extra.high)
    )
    spread = f"({low:.1f} to {high:.1f})"
    return (
        f"{op:26} {overhead.path:6} {1e6 * overhead.plain:9.1f} {median:8.1f} {spread:18}"
        f"{1e6 * overhead.typical:12.0f} {overhead.extra.median / overhead.typical:9.3%}"
        f"{'  too much' if overhead.is_too_large else ''}"
    )


def heading(rounds: int) -> str:
    """Return what was measured, where and when, and the names of the columns."""
    return (
        f"{machine(torch.device('cpu'))}, torch {torch.__version__}, Python"
        f" {platform.python_version()}, {datetime.now(timezone.utc):%Y-%m-%d}\n"
        f"processor time of one thread, medians of {rounds} pairs, beside other processes; µs\n\n"
        f"{'op':26} {'path':6} {'plain':>9} {'extra':>8} {'':18}{'typical':>12} {'share':>9}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="only ops in whose name this is found")
    parser.add_argument("--rounds", type=int, default=301, help="the number of pairs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(heading(arguments.rounds), flush=True)
    measured = []
    with torch.no_grad(), uncollected():
        for case in CASES:
            if re.search(arguments.only, case.op):
                for overhead in overheads(case, arguments.rounds):
                    print(line(case.op, overhead), flush=True)
                    measured.append(overhead)
    too_large = sum(overhead.is_too_large for overhead in measured)
    print(
        f"\n{len(measured)} measurements, {too_large} above both {1e6 * LIMIT_SECONDS:.0f} µs and"
        f" {LIMIT_SHARE:.1%} of a typical call"
    )
    return 1 if too_large else 0


if __name__ == "__main__":
    sys.exit(main())
