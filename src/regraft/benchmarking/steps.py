"""A step of a model, in inference or training, and what it takes once it is warm: seconds by the
clock of its device, and peak memory."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regraft.execution.nested import flatten

SLICE = 0.02  # seconds; shorter steps are repeated until a measurement takes as long
LONG = 0.5  # seconds; a step that takes longer is one measurement, whatever it is watched for
WARM_UP = 2
Step = Callable[[], object]
Call = tuple[tuple[Any, ...], Mapping[str, Any]]


class BenchError(Exception):
    """Something that cannot be measured; one sentence says why."""


def step(model: Any, calls: Sequence[Call], training: bool) -> Step:
    """Return one step: all calls without gradients; with `training`, each forward and backward with
    fresh gradients of the output's `loss`, or the only number in the output, or else the sum of the
    mean squares of its floating tensors. No optimizer runs, because its cost does not depend on how
    the model computes."""
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
class Prepared:
    """A step that has run before: one measurement of it is the mean of `repeats` runs."""

    run: Step
    repeats: int


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
    return _peak_by_profiler(run_step)


def _peak_by_profiler(run_step: Step) -> int:
    """Return the peak bytes of a step on the CPU: the highest sum of what it has allocated and
    freed. Raises BenchError where the profiler records no memory."""
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
