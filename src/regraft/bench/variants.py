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
from regraft.verify.child.replay import Outcome, Plan, Target, execute, judge

Rules = frozenset[str]
NONE: Rules = frozenset()
LIGER: Rules = frozenset({"Liger's own patch"})


class Variants:
    """The model as it is and as sets of rules rewrite it.

    With `verify` all rules together are verified first, and no variant rewrites a definition that is not proved then.

    names       the rules that each change something in the model, in order of their ids
    all         what all of them together did, and what they left
    """

    def __init__(self, model: Any, rules: Sequence[CompiledRule], *, verify: bool, time_limit: float) -> None:
        self._rules = {one.rule.id: one for one in rules}
        self._time_limit = time_limit
        self._original = model
        self._made: dict[Rules, Any] = {NONE: model}
        self.all = rewrite(_sharing(model), rules, verify, time_limit=time_limit)
        self.unproved = set(self.all.unproved)
        self.names = tuple(one for one in sorted(self.all.found) if self._made_by(frozenset({one})).changes)

    def __getitem__(self, names: Rules) -> Any:
        if names not in self._made:
            self._made_by(names)
        return self._made[names]

    def add_liger(self) -> bool:
        """Make Liger's own patch the variant LIGER; False where it has none for models of this type."""
        patched = liger_patched(_sharing(self._original))
        if patched is not None:
            self._made[LIGER] = patched
        return patched is not None

    def _made_by(self, names: Rules) -> Optimization:
        result = rewrite(_sharing(self._original), self._of(names), False, without=self.unproved)
        self._made[names] = result.model
        return result

    def proved(self, names: Rules) -> bool:
        """Whether all that a variant rewrites is proved of these rules by themselves; what is not is left out now."""
        result = rewrite(_sharing(self._original), self._of(names), True, time_limit=self._time_limit)
        more = result.unproved - self.unproved
        if more:
            self.unproved |= more
            self._made = {NONE: self._original}
        return not more

    def _of(self, names: Iterable[str]) -> list[CompiledRule]:
        return [self._rules[name] for name in sorted(names)]


def _sharing(model: Any) -> Any:
    """A copy of a model with the same parameters, and buffers of its own."""
    try:
        return copy.deepcopy(model, {id(one): one for one in model.parameters()})
    except Exception as problem:
        raise BenchError(f"the model cannot be copied: {type(problem).__name__}: {problem}") from problem


def difference(original: nn.Module, other: nn.Module, calls: Sequence[Call]) -> str:
    """How the results of two models in evaluation differ on the calls, as verification judges it; "" where not."""
    for one in (original, other):
        one.eval()
    plan = Plan(gradients=False)
    for args, kwargs in calls:
        call = tree.snapshot(args, kwargs, original)
        before, after = (execute(Target(one), call, plan) for one in (original, other))
        if before.error is not None:
            raise BenchError(f"the model does not run: {type(before.error).__name__}: {before.error}")

        def exact(call: tree.Call = call) -> Outcome:
            wide = weights.copied(original).to(torch.float64)
            return execute(Target(wide), call, Plan(gradients=False, dtype=torch.float64))

        found = judge(before, after, exact, Largest(), strict=True)
        if found is not None:
            return found.sentence
    return ""
