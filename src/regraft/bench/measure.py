"""Time and peak memory of steps, compared in pairs that run directly one after the other in one process."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regraft.scanning import uncollected
from regraft.verify.child import tree

LEVEL = 0.95
FEWEST = 6  # pairs, with fewer there is no interval of that level
SLICE = 0.02  # seconds; shorter steps are repeated until one measurement takes as long
WARM_UP = 2

Step = Callable[[], None]
Call = tuple[tuple[Any, ...], Mapping[str, Any]]


class BenchError(Exception):
    """Something that cannot be measured; one sentence says why."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A median, and the ends of an interval that holds the true one with a probability of at least LEVEL."""

    low: float
    median: float
    high: float


def interval(values: Sequence[float]) -> Interval:
    """The median of independent values and its confidence interval by order statistics.

    The k-th smallest and k-th largest value, with the largest k for which P(Binomial(n, ½) < k) ≤ (1 - LEVEL) / 2:
    exact for every continuous distribution, nothing is resampled or assumed normal (David and Nagaraja, Order
    Statistics, 3rd edition, section 7.1). Raises ValueError for fewer than FEWEST values.
    """
    ordered, n = sorted(values), len(values)
    if n < FEWEST:
        raise ValueError(f"an interval needs {FEWEST} values, not {n}")
    k, below = 0, 1.0
    while below <= (1 - LEVEL) / 2 * 2**n:
        k += 1
        below += math.comb(n, k)
    return Interval(ordered[k - 1], statistics.median(ordered), ordered[n - k])


def step(model: Any, calls: Sequence[Call], training: bool) -> Step:
    """One step: all calls without gradients; with `training`, each forward and backward with fresh gradients.

    Differentiated is the output's `loss`, or else the sum of the mean squares of its floating tensors. No optimizer
    runs: what it costs does not depend on how the model computes.
    """
    parameters = list(model.parameters())

    def inference() -> None:
        with torch.no_grad():
            for args, kwargs in calls:
                model(*args, **kwargs)

    def training_step() -> None:
        for args, kwargs in calls:
            _loss(model(*args, **kwargs)).backward()
            for one in parameters:
                one.grad = None

    return training_step if training else inference


def _loss(output: Any) -> torch.Tensor:
    given = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(given, torch.Tensor) and given.requires_grad and given.dim() == 0:
        return given
    found = [one for one in tree.flatten(output).values() if isinstance(one, torch.Tensor) and one.requires_grad]
    if not found:
        raise BenchError("nothing in the model's output has a gradient, so there is no training step to measure")
    total: torch.Tensor = sum(one.float().square().mean() for one in found)
    return total


@dataclass(frozen=True, slots=True)
class Pair:
    """Two steps, measured in turn: seconds of each, and `speed`, how many times as fast `new` is (old ÷ new)."""

    old: Interval
    new: Interval
    speed: Interval


def compare(old: Step, new: Step, rounds: int, device: torch.device) -> Pair:
    """Measure two steps in `rounds` pairs; who goes first alternates. Seconds are those of one step."""
    for one in (old, new):
        _warm(one)
    olds: list[float] = []
    news: list[float] = []
    gc.collect()
    with uncollected():
        both = [(one, _repeats(one, device), times) for one, times in ((old, olds), (new, news))]
        for number in range(rounds):
            for one, repeats, times in both[:: 1 if number % 2 else -1]:
                times.append(_seconds(one, repeats, device))
    ratios = [before / after for before, after in zip(olds, news, strict=True)]
    return Pair(interval(olds), interval(news), interval(ratios))


def _warm(one: Step) -> None:
    """Run a step before it is measured: what is allocated or compiled once is no part of it."""
    try:
        for _ in range(WARM_UP):
            one()
    except BenchError:
        raise
    except Exception as problem:
        raise BenchError(f"the model does not run: {type(problem).__name__}: {problem}") from problem


def _repeats(one: Step, device: torch.device) -> int:
    return max(1, math.ceil(SLICE / max(_seconds(one, 1, device), 1e-9)))


def clock(device: torch.device) -> str:
    """What seconds are: of the processor for one thread on CPU, where other programs then count less, else elapsed."""
    return "processor time" if device.type == "cpu" and torch.get_num_threads() == 1 else "elapsed time"


def _seconds(one: Step, repeats: int, device: torch.device) -> float:
    now = time.process_time if clock(device) == "processor time" else time.perf_counter
    _wait(device)
    start = now()
    for _ in range(repeats):
        one()
    _wait(device)
    return (now() - start) / repeats


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak(one: Step, device: torch.device) -> int:
    """Bytes that a step needs at most beyond what is there before it: parameters and inputs are not counted.

    On CUDA as PyTorch's allocator counts. On CPU the largest running sum of all that PyTorch's allocator hands out and
    takes back, inside operators and compiled code too, as the profiler records it; scratch space that oneDNN and
    OpenMP take from the system themselves is not in it.
    """
    _warm(one)
    if device.type == "cuda":
        _wait(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        one()
        _wait(device)
        return int(torch.cuda.max_memory_allocated(device) - before)
    gc.collect()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        one()
    events = [one for one in profile.profiler.kineto_results.events() if one.name() == "[memory]"]
    if not events:
        raise BenchError("the profiler of this PyTorch records no memory")
    total = highest = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        total += event.nbytes()
        highest = max(highest, total)
    return highest
