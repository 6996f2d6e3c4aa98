"""Time and peak memory of steps, compared in pairs that run directly one after the other in one
process."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regraft.execution.nested import flatten
from regraft.scanning import uncollected

LEVEL = 0.95
FEWEST = 6  # with fewer pairs there is no interval of that level
SLICE = 0.02  # seconds; shorter steps are repeated until a measurement takes as long
WARM_UP = 2
MARGIN = 0.02  # of the speed: an interval is looked at after every pair, so it has to be this clear

Step = Callable[[], object]
Call = tuple[tuple[Any, ...], Mapping[str, Any]]


class BenchError(Exception):
    """Something that cannot be measured; one sentence says why."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A median, and the ends of an interval that holds the true one with a probability of at least
    LEVEL."""

    low: float
    median: float
    high: float


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


def step(model: Any, calls: Sequence[Call], training: bool) -> Step:
    """Return one step: all calls without gradients; with `training`, each forward and backward with
    fresh gradients.

    The output's `loss` is differentiated, or the only number in the output, or else the sum of the
    mean squares of its floating tensors. No optimizer runs, because its cost does not depend on how
    the model computes.
    """
    parameters = list(model.parameters())

    def inference() -> None:
        with torch.no_grad():
            for args, kwargs in calls:
                model(*args, **kwargs)

    def training_step() -> None:
        for args, kwargs in calls:
            loss_of(model(*args, **kwargs)).backward()
            for parameter in parameters:
                parameter.grad = None

    return training_step if training else inference


def loss_of(output: Any) -> torch.Tensor:
    """Return the output's `loss`, or the only number in it that has a gradient (`return logits,
    loss`), else the sum of mean squares of its tensors.

    Raises BenchError where no tensor in the output has a gradient.
    """
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor) and loss.requires_grad and loss.dim() == 0:
        return loss
    differentiable = [
        tensor
        for tensor in flatten(output).values()
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad
    ]
    if not differentiable:
        raise BenchError(
            "nothing in the model's output has a gradient, so there is no training step to measure"
        )
    numbers = [tensor for tensor in differentiable if tensor.dim() == 0]
    if len(numbers) == 1:
        return numbers[0]
    total: torch.Tensor = sum(tensor.float().square().mean() for tensor in differentiable)
    return total


@dataclass(frozen=True, slots=True)
class Pair:
    """Two steps, measured in turn: the seconds of each, and `speed`, how many times as fast `new`
    is (old ÷ new)."""

    old: Interval
    new: Interval
    speed: Interval


def compare(
    old: Step,
    new: Step,
    rounds: int,
    device: torch.device,
    *,
    is_enough: Callable[[Interval], bool] = lambda _: False,
    slice_seconds: float = SLICE,
) -> Pair:
    """Measure two steps in `rounds` pairs, which start with either step in turn; the seconds are
    those of one step.

    It ends earlier, after FEWEST rounds or later, when `is_enough` accepts the interval of the
    speed. A shorter step is repeated until a measurement takes `slice_seconds`.
    """
    for run_step in (old, new):
        warm(run_step)
    old_seconds: list[float] = []
    new_seconds: list[float] = []
    gc.collect()
    with uncollected():
        measurements = [
            (run_step, _repeats(run_step, device, slice_seconds), seconds)
            for run_step, seconds in ((old, old_seconds), (new, new_seconds))
        ]
        for round_number in range(rounds):
            for run_step, repeats, seconds in measurements[:: 1 if round_number % 2 else -1]:
                seconds.append(seconds_of(run_step, repeats, device))
            if round_number + 1 >= FEWEST and is_enough(_speed(old_seconds, new_seconds)):
                break
    return Pair(interval(old_seconds), interval(new_seconds), _speed(old_seconds, new_seconds))


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


def _speed(old_seconds: Sequence[float], new_seconds: Sequence[float]) -> Interval:
    """Return how many times as fast the new step is, from the seconds of each pair."""
    return interval(
        [before / after for before, after in zip(old_seconds, new_seconds, strict=True)]
    )


def warm(run_step: Step, times: int = WARM_UP) -> None:
    """Run a step before it is measured, so that what is allocated or compiled once is not measured.

    Raises BenchError where the model does not run.
    """
    try:
        for _ in range(times):
            run_step()
    except BenchError:
        raise
    except Exception as problem:
        raise BenchError(
            f"the model does not run: {type(problem).__name__}: {problem}"
        ) from problem


def _repeats(run_step: Step, device: torch.device, slice_seconds: float) -> int:
    """Return how often to repeat a step so that a measurement takes `slice_seconds`."""
    return max(1, math.ceil(slice_seconds / max(seconds_of(run_step, 1, device), 1e-9)))


def clock(device: torch.device) -> str:
    """Return the kind of seconds that are measured.

    "processor time" for one thread on CPU, where other programs then count less, else "elapsed
    time".
    """
    return (
        "processor time"
        if device.type == "cpu" and torch.get_num_threads() == 1
        else "elapsed time"
    )


def seconds_of(run_step: Step, repeats: int, device: torch.device) -> float:
    """Return the seconds of one step, the mean of `repeats` runs."""
    now = time.process_time if clock(device) == "processor time" else time.perf_counter
    wait(device)
    start = now()
    for _ in range(repeats):
        run_step()
    wait(device)
    return (now() - start) / repeats


def wait(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak(run_step: Step, device: torch.device) -> int:
    """Return the bytes that a step needs at most beyond those before it: parameters and inputs are
    not counted.

    On CUDA they are those that PyTorch's allocator counts. On CPU they are the largest running sum
    of all that PyTorch's allocator hands out and takes back, inside operators and compiled code
    too, as the profiler records it; scratch space that oneDNN and OpenMP take from the system
    themselves is not counted.
    """
    warm(run_step)
    if device.type == "cuda":
        wait(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        run_step()
        wait(device)
        return int(torch.cuda.max_memory_allocated(device) - before)
    gc.collect()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        run_step()
    events = [
        event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"
    ]
    if not events:
        raise BenchError("the profiler of this PyTorch records no memory")
    total = highest = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        total += event.nbytes()
        highest = max(highest, total)
    return highest
