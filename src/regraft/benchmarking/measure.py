"""Time and peak memory of steps, compared in pairs that run directly one after the other in one
process."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from regraft.execution.nested import flatten
from regraft.source.garbage import uncollected

LEVEL = 0.95
FEWEST = 6  # with fewer pairs there is no interval of that level
SLICE = 0.02  # seconds; shorter steps are repeated until a measurement takes as long
LONG = 0.5  # seconds; a step that takes longer is one measurement, whatever it is watched for
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

    def inverse(self) -> Pair:
        """Return the same measurements with the two steps exchanged."""
        return Pair(self.new, self.old, self.speed.inverse())


@dataclass(frozen=True, slots=True)
class Prepared:
    """A step that has run before: one measurement of it is the mean of `repeats` runs."""

    run: Step
    repeats: int


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
    prepared_old, prepared_new = (
        prepare(run_step, device, slice_seconds) for run_step in (old, new)
    )
    race = Race(prepared_old, {"": prepared_new}, rounds, device, is_enough=is_enough)
    race.run()
    return race.pairs()[""]


class Race:
    """Comparisons of several steps with the same other one, `old`, in rounds.

    In each round every step that is not settled is measured directly before or directly after
    `old`, in the next round the other way round. One measurement of `old` serves the two steps
    beside it. A step is settled when `is_enough` accepts the interval of its speed, after FEWEST
    rounds or later, or after `rounds` of them.
    """

    def __init__(
        self,
        old: Prepared,
        steps: Mapping[Any, Prepared],
        rounds: int,
        device: torch.device,
        *,
        is_enough: Callable[[Interval], bool],
    ) -> None:
        self._old, self._rounds, self._device, self._is_enough = old, rounds, device, is_enough
        runners = [_Runner(name, prepared) for name, prepared in steps.items()]
        self._groups = [tuple(runners[start : start + 2]) for start in range(0, len(runners), 2)]

    def run(
        self,
        on_settled: Callable[[Any, Pair], None] = lambda *_: None,
        on_progress: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        """Measure until all steps are settled.

        on_settled   gets the name and the pair of each step as soon as it is settled
        on_progress  gets the number of pairs measured so far, and the most that there will be
        """
        gc.collect()
        with uncollected():
            for round_number in range(self._rounds):
                for group in self._groups:
                    self._measure(group, round_number)
                    on_progress(*self._count())
                    for runner in group:
                        if not runner.is_settled and self._settles(runner):
                            runner.is_settled = True
                            on_settled(runner.name, runner.pair())

    def pairs(self) -> dict[Any, Pair]:
        """Return the pairs of the steps by name, of those with FEWEST measurements or more."""
        return {
            runner.name: runner.pair()
            for group in self._groups
            for runner in group
            if len(runner.seconds) >= FEWEST
        }

    def _measure(self, group: tuple[_Runner, ...], round_number: int) -> None:
        """Measure the steps of a group that are not settled, each beside `old`."""
        before, after = group[0], group[1] if len(group) > 1 else None
        order: list[_Runner | None] = [before, None, after]  # None in the middle stands for `old`
        if round_number % 2:
            order.reverse()
        first, last = (
            runner if runner is not None and not runner.is_settled else None
            for runner in (order[0], order[2])
        )
        if first is None and last is None:
            return
        first_seconds = seconds_of(first.prepared, self._device) if first is not None else 0.0
        old_seconds = seconds_of(self._old, self._device)
        if first is not None:
            first.seconds.append((old_seconds, first_seconds))
        if last is not None:
            last.seconds.append((old_seconds, seconds_of(last.prepared, self._device)))

    def _settles(self, runner: _Runner) -> bool:
        """Return whether a step needs no further pairs."""
        count = len(runner.seconds)
        return count >= self._rounds or (count >= FEWEST and self._is_enough(runner.pair().speed))

    def _count(self) -> tuple[int, int]:
        """Return the number of pairs measured so far, and the most that there will be."""
        runners = [runner for group in self._groups for runner in group]
        measured = sum(len(runner.seconds) for runner in runners)
        waiting = sum(
            self._rounds - len(runner.seconds) for runner in runners if not runner.is_settled
        )
        return measured, measured + waiting


@dataclass(slots=True)
class _Runner:
    """A step in a race, with the seconds of `old` and of the step in each of its pairs."""

    name: Any
    prepared: Prepared
    seconds: list[tuple[float, float]] = field(default_factory=list)
    is_settled: bool = False

    def pair(self) -> Pair:
        """Return the intervals of the pairs so far."""
        return Pair(
            interval([old for old, _ in self.seconds]),
            interval([new for _, new in self.seconds]),
            interval([old / new for old, new in self.seconds]),
        )


def prepare(run_step: Step, device: torch.device, slice_seconds: float = SLICE) -> Prepared:
    """Run a step until it is warm, and return it with the number of its runs that take
    `slice_seconds`.

    Raises BenchError where the model does not run.
    """
    warm(run_step)
    seconds = seconds_of(Prepared(run_step, 1), device)
    return Prepared(run_step, max(1, math.ceil(slice_seconds / max(seconds, 1e-9))))


def prepare_with_peak(
    run_step: Step, device: torch.device, *, compiled: bool = False
) -> tuple[Prepared, int]:
    """Return a step that is warm, and the bytes of `peak`.

    A long step runs twice for both: the run that is watched for its memory is a run to warm up.
    Compiled code runs once more before, since it may be compiled again in its second run.
    """
    seconds: list[float] = []

    def timed_step() -> None:
        started = time.perf_counter()
        run_step()
        seconds.append(time.perf_counter() - started)

    warm(run_step, WARM_UP if compiled else 1)
    size = _peak_of_warm(timed_step, device)
    return Prepared(run_step, 1) if seconds[0] > LONG else prepare(run_step, device), size


def step_seconds(model: Any, calls: Sequence[Call], training: bool, device: torch.device) -> float:
    """Return the seconds of one step of a model, roughly: of its second run.

    Raises BenchError where the model does not run.
    """
    run_step = step(model.train(training), calls, training)
    warm(run_step, 1)
    return seconds_of(Prepared(run_step, 1), device)


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


def seconds_of(step: Prepared, device: torch.device) -> float:
    """Return the seconds of one run of a step, the mean of its repeats."""
    now = time.process_time if clock(device) == "processor time" else time.perf_counter
    wait(device)
    start = now()
    for _ in range(step.repeats):
        step.run()
    wait(device)
    return (now() - start) / step.repeats


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
    return _peak_of_warm(run_step, device)


def _peak_of_warm(run_step: Step, device: torch.device) -> int:
    """Return the peak bytes of a step that has run before."""
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
