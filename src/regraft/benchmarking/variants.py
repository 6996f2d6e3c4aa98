"""Copies of a model, rewritten by different rules, that share its parameters, and their proof."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from regraft.benchmarking.liger_patch import liger_patched
from regraft.benchmarking.proof_subjects import Examination
from regraft.benchmarking.sdpa_alternative import with_sdpa
from regraft.benchmarking.steps import BenchError
from regraft.configuration import Settings as Project
from regraft.live import NotPicklable, Optimization, rewrite
from regraft.live.changed_definitions import Name
from regraft.scanning import CompiledRule

Rules = frozenset[str]
NONE: Rules = frozenset()
LIGER: Rules = frozenset({"Liger's own patch"})
SDPA: Rules = frozenset({"attn_implementation='sdpa'"})


class Variants:
    """The original model, and the copies of it that sets of rules rewrite.

    With `verify` all rules together are verified first, and no variant rewrites a definition that
    is not proved then.

    The settings of the project say which rules are ignored in which files, what a proof must not
    lose, and how long one may take.

    names        the rules that each change something in the model, in order of their ids
    all          the result of all rules together, with the places that they left
    unproved     the definitions, by file and name, that no variant rewrites
    examination  the subjects on which rules are verified
    """

    def __init__(
        self,
        model: Any,
        rules: Sequence[CompiledRule],
        *,
        verify: bool,
        project: Project,
        examination: Examination,
    ) -> None:
        self._rules = {rule.rule.id: rule for rule in rules}
        self._project = project
        self._original = model
        self._model_by_rules: dict[Rules, Any] = {NONE: model}
        self.examination = examination
        self.all = self._verified(rules) if verify else self._rewrite(self._copy(), rules)
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
        patched = liger_patched(self._copy())
        if patched is not None:
            self._model_by_rules[LIGER] = patched
        return patched is not None

    def add_sdpa(self) -> bool:
        """Make the model with PyTorch's attention the variant SDPA; return False where it computes
        that already, or cannot."""
        model = with_sdpa(self._original, self._copy)
        if model is not None:
            self._model_by_rules[SDPA] = model
        return model is not None

    def _make_variant(self, names: Rules) -> Optimization:
        """Rewrite a copy of the model by these rules, and keep it as their variant; with SDPA in
        `names` a copy of that variant."""
        base = self._model_by_rules[SDPA] if names >= SDPA else self._original
        rules = self._rules_named(names - SDPA)
        result = self._rewrite(_copy_sharing_parameters(base), rules, without=self.unproved)
        self._model_by_rules[names] = result.model
        return result

    def prove(self, names: Rules) -> bool:
        """Verify all that a variant rewrites, by these rules alone; return whether it is proved.

        Definitions that are not proved are left out of all variants from now on.
        """
        newly_unproved = self._verified(self._rules_named(names)).unproved - self.unproved
        if newly_unproved:
            self.unproved |= newly_unproved
            for rules in self._model_by_rules.keys() - {NONE, LIGER, SDPA}:
                del self._model_by_rules[rules]
        return not newly_unproved

    def _verified(self, rules: Sequence[CompiledRule]) -> Optimization:
        """Rewrite a copy of the model by these rules in the definitions that are proved, on the
        subjects of the examination."""
        calls = self.examination.calls
        if calls is not None:
            try:
                return self._rewrite(self._copy(), rules, verify=True, calls=list(calls))
            except NotPicklable as problem:
                self.examination = Examination.without_model(
                    f"your model cannot be pickled for the process that verifies ({problem.reason})"
                )
        return self._rewrite(self._copy(), rules, verify=True)

    def _rewrite(
        self,
        model: Any,
        rules: Sequence[CompiledRule],
        *,
        verify: bool = False,
        without: Collection[Name] = (),
        calls: list[Any] | None = None,
    ) -> Optimization:
        """Rewrite a copy of the model by rules, as the project wants it."""
        return rewrite(
            model,
            rules,
            verify,
            time_limit=self._project.time_limit,
            without=without,
            project=self._project,
            calls=calls,
        )

    def _copy(self) -> Any:
        """Return a copy of the original model with the same parameters, and buffers of its own."""
        return _copy_sharing_parameters(self._original)

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
