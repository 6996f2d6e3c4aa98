"""Run a call in float64 with the random numbers that it draws in its own number format: a generator
gives other numbers in another format, and results of these would say nothing about rounding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_outcomes import Outcome, Plan, Target
from regraft.verification.child.random_states import states_of_seed


def execute_exactly(
    exact: Target, own: Target, call: Call, plan: Plan, *, draws: bool = True
) -> Outcome:
    """Run a call on a target in float64 and return what was observed. Unless it is known that the
    call draws no random numbers (`draws`), `own`, the same target in its own number format, runs
    before, and its numbers are drawn again. An error of the model is in the outcome."""
    if not draws:
        return execute(exact, call, plan.exact())
    with _RecordedDraws() as recorded:
        execute(own, call, plan)
    with _RepeatedDraws(recorded.numbers):
        return execute(exact, call, plan.exact())


def draws_numbers(outcome: Outcome, plan: Plan) -> bool:
    """Return whether the random state of PyTorch after a run is another than before it. A run that
    ended in an error counts, too."""
    return outcome.random_state_hash != _state_hash(plan.seed)


def _state_hash(seed: int) -> int:
    """Return the hash of PyTorch's random state right after `reseed`."""
    return hash(states_of_seed(seed, has_numpy=False)["torch"])


class _RecordedDraws(TorchDispatchMode):  # type: ignore[misc]  # torch does not type it
    """Records the results of operations that draw random numbers, in `numbers`, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[torch.Tensor] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation, and return its result, which is recorded if it is a random tensor."""
        result = func(*args, **(kwargs or {}))
        if _is_random(func) and isinstance(result, torch.Tensor):
            self.numbers.append(result.detach().clone())
        return result


class _RepeatedDraws(TorchDispatchMode):  # type: ignore[misc]  # torch does not type it
    """Gives recorded numbers to operations that draw random ones, in the number format of these
    operations, as long as the shapes are those of the record."""

    def __init__(self, numbers: list[torch.Tensor]) -> None:
        super().__init__()
        self._numbers: Iterator[torch.Tensor] = iter(numbers)

    def __torch_dispatch__(
        self,
        func: Any,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation, and return its result, with the recorded numbers if it is a random
        tensor. After a shape that is not the recorded one the rest is drawn anew."""
        result = func(*args, **(kwargs or {}))
        if not _is_random(func) or not isinstance(result, torch.Tensor):
            return result
        numbers = next(self._numbers, None)
        if numbers is None or numbers.shape != result.shape:
            self._numbers = iter(())
            return result
        return result.copy_(numbers)


def _is_random(operation: Any) -> bool:
    """Return whether an operation of ATen draws random numbers."""
    return torch.Tag.nondeterministic_seeded in operation.tags
