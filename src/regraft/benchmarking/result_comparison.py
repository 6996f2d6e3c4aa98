"""Comparison of what a model and its variants compute on the user's inputs."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import nn

from regraft.benchmarking.steps import BenchError, Call
from regraft.verification.child import call_arguments, weights
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_outcomes import Outcome, Plan, Target
from regraft.verification.child.comparison_terms import Largest, Rigour
from regraft.verification.child.outcome_comparison import judge


class Results:
    """The results of a model on the user's calls, in evaluation mode, with which those of variants
    are compared; with `gradients` also the gradients of its parameters.

    The model runs once for all variants. Its results stay in memory as long as this object.
    """

    def __init__(self, original: nn.Module, calls: Sequence[Call], *, gradients: bool) -> None:
        self._original = original
        self._plan = Plan(gradients=gradients, leaves=False)
        self._calls = [call_arguments.snapshot(args, kwargs, original) for args, kwargs in calls]
        self._outcome = functools.cache(self._run_original)
        self._exact_outcome = functools.cache(self._run_exactly)

    def difference(self, variant: nn.Module) -> str:
        """Return how the results of a variant differ, as verification judges it; "" for equal ones.

        Raises BenchError where the original does not run.
        """
        variant.eval()
        for number, call in enumerate(self._calls):
            after = execute(Target(variant), call, self._plan)
            exact = functools.partial(self._exact_outcome, number)
            mismatch = judge(self._outcome(number), after, exact, Largest(), Rigour(strict=True))
            if mismatch is not None:
                return mismatch.sentence
        return ""

    def _run_original(self, number: int) -> Outcome:
        """Return the outcome of a call of the original; raise BenchError where it does not run."""
        outcome = execute(Target(self._original.eval()), self._calls[number], self._plan)
        if outcome.error is not None:
            raise BenchError(
                f"the model does not run: {type(outcome.error).__name__}: {outcome.error}"
            )
        return outcome

    def _run_exactly(self, number: int) -> Outcome:
        """Return the outcome of a call of the original in float64."""
        model = weights.copy_model(self._original.eval()).to(torch.float64)
        return execute(Target(model), self._calls[number], self._plan.exact())
