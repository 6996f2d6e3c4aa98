"""The time and memory of a model's steps by source line."""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import torch

from regraft.benchmarking.allocations import Allocations
from regraft.benchmarking.line_timer import LineTimer, Location
from regraft.benchmarking.steps import BenchError, Call, Prepared, loss_of, seconds_of, step, warm
from regraft.execution.nested import flatten
from regraft.source.garbage_collection import uncollected

LONG_STEP = 1.5  # seconds; a longer step warms up once only
PROFILED_SECONDS = 3.0  # after which no further step is profiled
FEWEST_STEPS, MOST_STEPS = 2, 50


class Profiler:
    """Runs steps of a model, as they are and profiled.

    line_timer  the time of all profiled steps, by line
    steps       their number
    seconds     the seconds of a step, as it is
    """

    def __init__(
        self,
        model: Any,
        calls: Sequence[Call],
        is_training: bool,
        device: torch.device,
        files: Collection[str],
    ) -> None:
        self.line_timer = LineTimer(files, device)
        self.seconds, self.steps = 0.0, 0
        self._model, self._calls, self._is_training = model, calls, is_training
        self._device, self._files = device, files

    def measure_time(self) -> None:
        """Run steps, each as it is and then profiled, until they took long enough; a long step runs
        once only as it is.

        Raises BenchError where the model does not run or cannot be profiled.
        """
        run_step = step(self._model, self._calls, self._is_training)
        started = time.perf_counter()
        compiler = _CompilerWatch()
        warm(run_step, 1)
        compiler.check()
        is_long = time.perf_counter() - started > LONG_STEP
        if not is_long:
            warm(run_step, 1)
        seconds: list[float] = []
        gc.collect()
        with uncollected():
            end = time.perf_counter() + PROFILED_SECONDS
            while self.steps < FEWEST_STEPS or (
                self.steps < MOST_STEPS and time.perf_counter() < end
            ):
                if not (is_long and seconds):
                    seconds.append(seconds_of(Prepared(run_step, 1), self._device))
                self._profile_step()
                self.steps += 1
        self.seconds = statistics.mean(seconds)

    def measure_memory(self) -> tuple[Counter[Location] | None, str]:
        """Return the bytes that are alive at the peak of a step by line, and a note about them.

        There are none where the model does not run while its operators are watched.
        """
        timer = LineTimer(self._files, self._device)
        existing = [*self._model.parameters(), *self._model.buffers()]
        for number, call in enumerate(self._calls):
            leaves = flatten(call, f"call {number}").values()
            existing += (leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
        allocations = Allocations(lambda: timer.location, existing)
        try:
            with allocations:
                self._run_profiled(timer)
        except Exception as problem:  # noqa: BLE001  whatever watching does to the model
            return None, f"{type(problem).__name__}: {problem}"
        note = "tensors without storage, such as sparse ones, are not counted"
        return allocations.peak(), note if allocations.has_uncounted else ""

    def _profile_step(self) -> None:
        """Run a profiled step; raise BenchError where only the profile keeps it from running."""
        try:
            self._run_profiled(self.line_timer)
        except BenchError:
            raise
        except Exception as problem:
            raise BenchError(
                f"the model does not run while it is profiled: {type(problem).__name__}: {problem}"
            ) from problem

    def _run_profiled(self, timer: LineTimer) -> None:
        """Run a step and charge its time to lines by `timer`."""
        for args, kwargs in self._calls:
            if not self._is_training:
                with torch.no_grad(), timer:
                    self._model(*args, **kwargs)
                continue
            with timer:
                loss = loss_of(self._model(*args, **kwargs))
            end_attribution = timer.attribute_backward(loss)
            try:
                with timer:
                    loss.backward()
            finally:
                end_attribution()
            del loss, end_attribution
            for parameter in self._model.parameters():
                parameter.grad = None


class _CompilerWatch:
    """Watches whether torch.compile compiles something from now on; what it has compiled before is
    compiled anew."""

    def __init__(self) -> None:
        if "torch._dynamo" in sys.modules:  # else importing it would take seconds
            torch.compiler.reset()
        self._before = _compiled_frames()

    def check(self) -> None:
        """Raise BenchError where something was compiled: it has no lines that could be traced."""
        if _compiled_frames() > self._before:
            raise BenchError(
                "the model, or a function that it calls, is compiled by torch.compile, and compiled"
                " code has no lines to profile: set TORCH_COMPILE_DISABLE=1 to profile the model"
                " without that"
            )


def _compiled_frames() -> int:
    """Return the number of frames that torch.compile has compiled in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else int(dynamo.counters["frames"]["total"])
