"""Run a call in float64 with the random numbers that it draws in its own number format: a generator
gives other numbers in another format, and results of these would say nothing about rounding."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import torch

from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_outcomes import Outcome, Plan, Target
from regraft.verification.child.operation_result_mode import ResultMode


def execute_exactly(exact: Target, own: Target, call: Call, plan: Plan, *, draws: bool) -> Outcome:
    """Run a call on a target in float64 and return what was observed. Where the call draws random
    numbers (`draws`), `own`, the same target in its own number format, runs before, and its numbers
    are drawn again. An error of the model is in the outcome."""
    if not draws:
        return execute(exact, call, plan.exact())
    with _RecordedDraws() as recorded:
        execute(own, call, plan)
    with _RepeatedDraws(recorded.numbers):
        return execute(exact, call, plan.exact())


class _Draws(ResultMode):
    """Passes on the results of operations, those of which are random numbers by `pass_on_draw`."""

    only_observes = True  # numbers may be read: operations of Regraft run as they do without it

    def pass_on(self, operation: Any, result: Any) -> Any:
        """Return the result of an operation, or what is drawn in its place."""
        is_drawn = torch.Tag.nondeterministic_seeded in operation.tags
        return self.pass_on_draw(result) if is_drawn and torch.is_tensor(result) else result

    @abstractmethod
    def pass_on_draw(self, result: torch.Tensor) -> torch.Tensor:
        """Return what the caller gets for random numbers."""


class _RecordedDraws(_Draws):
    """Records the random numbers that are drawn, in `numbers`, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[torch.Tensor] = []

    def pass_on_draw(self, result: torch.Tensor) -> torch.Tensor:
        """Return the random numbers, which are recorded."""
        self.numbers.append(result.detach().clone())
        return result


class _RepeatedDraws(_Draws):
    """Gives recorded numbers to operations that draw random ones, in the number format of these
    operations, as long as the shapes are those of the record."""

    def __init__(self, numbers: list[torch.Tensor]) -> None:
        super().__init__()
        self._numbers: Iterator[torch.Tensor] = iter(numbers)

    def pass_on_draw(self, result: torch.Tensor) -> torch.Tensor:
        """Return the next recorded numbers. After a shape that is not the recorded one the rest is
        drawn anew."""
        numbers = next(self._numbers, None)
        if numbers is None or numbers.shape != result.shape:
            self._numbers = iter(())
            return result
        return result.copy_(numbers)
