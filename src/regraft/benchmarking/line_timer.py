"""The time of a step by the source line that spends it: a trace of the lines of a model's files."""

from __future__ import annotations

import bisect
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any

import torch

from regraft.benchmarking.steps import BenchError, clock, wait

Location = tuple[str, int]  # a file and a line of it
OUTSIDE: Location = ("", 0)

# `process_time` moves in steps of 16 ms on some systems, which is longer than most lines
_FINEST_CLOCK = 1e-6


class LineTimer:
    """Charges time to the innermost line of some files that runs.

    What a line calls outside of these files, such as PyTorch, is charged to the line. While the
    timer is entered, it traces the calls of this thread; time is counted only then. On CUDA it
    waits for the device before it charges a line.

    nanoseconds  the time by line; OUTSIDE is charged where no line of the files runs
    calls        the number of calls of each function of the files
    """

    def __init__(self, files: Collection[str], device: torch.device) -> None:
        self.nanoseconds: defaultdict[Location, int] = defaultdict(int)
        self.calls: Counter[CodeType] = Counter()
        self._files = frozenset(files)
        self._device = device
        self._now = _clock(device)
        self._last = 0
        self._stack = [OUTSIDE]
        self._first_instruction: dict[CodeType, int] = {}
        self._nodes = _NodeLocations()
        self._outer_trace: Any = None

    def __enter__(self) -> LineTimer:
        self._outer_trace = sys.gettrace()
        self._nodes.start()
        wait(self._device)
        sys.settrace(self._trace_call)
        self._last = self._now()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the trace; raise BenchError where something else has replaced it."""
        is_traced = sys.gettrace() == self._trace_call
        sys.settrace(self._outer_trace)
        self._charge()
        is_complete = is_traced and len(self._stack) == 1
        self._stack = [OUTSIDE]
        if problem is None and not is_complete:
            raise BenchError(
                "the model replaces Python's trace function (sys.settrace), by which it is profiled"
            )

    @property
    def location(self) -> Location:
        """The line that is charged now."""
        return self._stack[-1]

    def move(self, location: Location) -> None:
        """Charge a line from now on, until another one runs."""
        self._charge()
        self._stack[-1] = location

    def attribute_backward(self, loss: torch.Tensor) -> Callable[[], None]:
        """Have the nodes of the backward pass of `loss` charged to the lines that created them;
        return the function that ends this."""
        handles = [
            node.register_prehook(_mover(self, location))
            for node, location in self._nodes.locate(loss.grad_fn)
        ]

        def end() -> None:
            for handle in handles:
                handle.remove()

        return end

    def _charge(self) -> None:
        """Charge the time since the last charge, and the nodes created since, to the current
        line."""
        wait(self._device)
        location = self._stack[-1]
        self.nanoseconds[location] += self._now() - self._last
        self._nodes.charge(location)
        self._last = self._now()

    def _trace_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Begin to trace a function of the files, or the next part of a generator."""
        code = frame.f_code
        if code.co_filename not in self._files:
            return None
        self._charge()
        self._stack.append((code.co_filename, frame.f_lineno))
        # a generator that goes on is called at a later instruction than at its start
        if frame.f_lasti <= self._first_instruction.setdefault(code, frame.f_lasti):
            self.calls[code] += 1
        return self._trace_line

    def _trace_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Move to another line of a function, or leave the function."""
        if event == "line":
            self._charge()
            self._stack[-1] = (frame.f_code.co_filename, frame.f_lineno)
        elif event == "return":
            self._charge()
            self._stack.pop()
        return self._trace_line


class _NodeLocations:
    """The lines that created the nodes of autograd's graph, by the numbers that autograd gives to
    nodes in the order of their creation."""

    def __init__(self) -> None:
        self._ends: list[int] = []  # of the ranges of numbers, each from the end before it
        self._locations: list[Location] = []
        self._first = self._last = 0

    def start(self) -> None:
        """Begin anew with the next node."""
        self._ends, self._locations = [], []
        self._first = self._last = _next_number()

    def charge(self, location: Location) -> None:
        """Note the line that created all nodes since the last call."""
        number = _next_number()
        if number != self._last:
            self._ends.append(number)
            self._locations.append(location)
            self._last = number

    def locate(self, root: Any) -> Iterator[tuple[Any, Location]]:
        """Yield the nodes of a backward pass with their lines; a node that accumulates a gradient
        has the line of a node that hands it over."""
        reached = {root}
        pending = [(root, OUTSIDE)]
        while pending:
            node, user = pending.pop()
            location = self._location(node, user)
            yield node, location
            for following, _ in node.next_functions:
                if following is not None and following not in reached:
                    reached.add(following)
                    pending.append((following, location))

    def _location(self, node: Any, user: Location) -> Location:
        """Return the line of a node whose result `user` needs."""
        if not node.next_functions:
            return user
        number = node._sequence_nr()
        if not self._first <= number < self._last:
            return OUTSIDE
        return self._locations[bisect.bisect_right(self._ends, number)]


def _mover(timer: LineTimer, location: Location) -> Callable[[Any], None]:
    """Return a hook that charges a line from now on."""
    return lambda gradients: timer.move(location)


def _next_number() -> int:
    """Return the number that autograd gives to the next node of this thread."""
    return int(torch._C._autograd._get_sequence_nr())


def _clock(device: torch.device) -> Callable[[], int]:
    """Return the clock of `regraft bench` in nanoseconds, or that of elapsed time where it is
    coarse."""
    is_fine = time.get_clock_info("process_time").resolution <= _FINEST_CLOCK
    if clock(device) == "processor time" and is_fine:
        return time.process_time_ns
    return time.perf_counter_ns
