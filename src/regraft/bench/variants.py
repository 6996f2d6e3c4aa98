"""Copies of a model, rewritten by different rules, that share its parameters."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from regraft.bench.liger import liger_patched
from regraft.bench.measure import BenchError, Call
from regraft.live import Optimization, rewrite
from regraft.scanning import CompiledRule
from regraft.verify.child import tree, weights
from regraft.verify.child.compare import Largest
from regraft.verify.child.judgement import judge
from regraft.verify.child.replay import Outcome, Plan, Target, execute

Rules = frozenset[str]
NONE: Rules = frozenset()
LIGER: Rules = frozenset({"Liger's own patch"})


class Variants:
    """The original model, and the copies of it that sets of rules rewrite.

    With `verify` all rules together are verified first, and no variant rewrites a definition that
    is not proved then.

    names     the rules that each change something in the model, in order of their ids
    all       the result of all rules together, with the places that they left
    unproved  the definitions, by file and name, that no variant rewrites
    """

    def __init__(
        self, model: Any, rules: Sequence[CompiledRule], *, verify: bool, time_limit: float
    ) -> None:
        self._rules = {rule.rule.id: rule for rule in rules}
        self._time_limit = time_limit
        self._original = model
        self._model_by_rules: dict[Rules, Any] = {NONE: model}
        self.all = rewrite(_copy_sharing_parameters(model), rules, verify, time_limit=time_limit)
        self.unproved = set(self.all.unproved)
        self.names = tuple(
            name
            for name in sorted(self.all.applicable)
            if self._make_variant(frozenset({name})).changes
        )

    def __getitem__(self, names: Rules) -> Any:
        """Return the model as these rules rewrite it; it is made once."""
        if names not in self._model_by_rules:
            self._make_variant(names)
        return self._model_by_rules[names]

    def add_liger(self) -> bool:
        """Make Liger's own patch the variant LIGER; return False where it has none for models of
        this type."""
        patched = liger_patched(_copy_sharing_parameters(self._original))
        if patched is not None:
            self._model_by_rules[LIGER] = patched
        return patched is not None

    def _make_variant(self, names: Rules) -> Optimization:
        """Rewrite a copy of the model by these rules, and keep it as their variant."""
        result = rewrite(
            _copy_sharing_parameters(self._original),
            self._rules_named(names),
            False,
            without=self.unproved,
        )
        self._model_by_rules[names] = result.model
        return result

    def prove(self, names: Rules) -> bool:
        """Verify all that a variant rewrites, by these rules alone; return whether it is proved.

        Definitions that are not proved are left out of all variants from now on.
        """
        result = rewrite(
            _copy_sharing_parameters(self._original),
            self._rules_named(names),
            True,
            time_limit=self._time_limit,
        )
        newly_unproved = result.unproved - self.unproved
        if newly_unproved:
            self.unproved |= newly_unproved
            self._model_by_rules = {NONE: self._original}
        return not newly_unproved

    def _rules_named(self, names: Iterable[str]) -> list[CompiledRule]:
        """Return the rules of these names, in order of their ids."""
        return [self._rules[name] for name in sorted(names)]


def _copy_sharing_parameters(model: Any) -> Any:
    """Return a copy of a model with the same parameters, and buffers of its own."""
    try:
        return copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})
    except Exception as problem:
        raise BenchError(
            f"the model cannot be copied: {type(problem).__name__}: {problem}"
        ) from problem


def difference(original: nn.Module, rewritten: nn.Module, calls: Sequence[Call]) -> str:
    """Return how the results of two models in evaluation mode differ on the calls, as verification
    judges it.

    Returns "" for equal results. Raises BenchError where the original does not run.
    """
    for model in (original, rewritten):
        model.eval()
    plan = Plan(gradients=False)
    for args, kwargs in calls:
        call = tree.snapshot(args, kwargs, original)
        before, after = (execute(Target(model), call, plan) for model in (original, rewritten))
        if before.error is not None:
            raise BenchError(
                f"the model does not run: {type(before.error).__name__}: {before.error}"
            )

        def exact(call: tree.Call = call) -> Outcome:
            double_model = weights.copy_model(original).to(torch.float64)
            return execute(Target(double_model), call, Plan(gradients=False, dtype=torch.float64))

        mismatch = judge(before, after, exact, Largest(), strict=True)
        if mismatch is not None:
            return mismatch.sentence
    return ""
