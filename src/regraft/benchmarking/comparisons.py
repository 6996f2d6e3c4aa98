"""The comparisons of a benchmark: each rule, all rules together, and the alternatives to them,
against the original model."""

from __future__ import annotations

from collections.abc import Mapping

from regraft.benchmarking.options_and_results import Options, Result
from regraft.benchmarking.result_comparison import Results
from regraft.benchmarking.variant_measurement import COMPILED, ORIGINAL, Comparison
from regraft.benchmarking.variants import LIGER, SDPA, Rules, Variants


def rule_comparisons(
    differences: Mapping[str, str], correct_rules: tuple[str, ...]
) -> list[list[Comparison]]:
    """Return the comparisons of each rule, and of all correct rules together, with the original; of
    the original with itself where there is no rule.

    differences: how the results differ, by rule ("" where they are equal).
    """
    rows = [
        Comparison(name, (frozenset({name}), False), differs=differs)
        for name, differs in differences.items()
    ]
    if len(correct_rules) > 1:
        rows.append(Comparison(_label_for_all(correct_rules), (frozenset(correct_rules), False)))
    return [rows or [Comparison("original", ORIGINAL)]]


def alternatives(
    variants: Variants,
    results: Results,
    correct_rules: tuple[str, ...],
    options: Options,
    result: Result,
) -> list[list[Comparison]]:
    """Return the comparisons with what the user could do without Regraft: torch.compile, Liger's
    own patch and the attention of PyTorch. Each list has the same variant to compare with."""
    all_rules, label = frozenset(correct_rules), _label_for_all(correct_rules)
    stages: list[list[Comparison]] = [_sdpa_comparisons(variants, results, label, all_rules)]
    if stages[0]:
        result.notes += (
            "the model runs transformers' eager attention and supports PyTorch's:"
            f" {stages[0][0].name} is measured as well, for which no Regraft is needed",
        )
    if options.compile:
        combined = f"{label} + torch.compile"
        stages.append([Comparison("torch.compile", COMPILED)])
        if correct_rules:
            stages[-1].append(Comparison(combined, (all_rules, True)))
            stages.append([Comparison(combined, (all_rules, True), COMPILED, "torch.compile")])
    if options.liger and not variants.add_liger():
        result.left += (f"{result.model}: Liger has no patch for models of this type",)
    elif options.liger:
        (name,) = LIGER
        stages.append([Comparison(name, (LIGER, False))])
        if correct_rules:
            stages.append([Comparison(label, (all_rules, False), (LIGER, False), name)])
    return stages


def _sdpa_comparisons(
    variants: Variants, results: Results, label: str, all_rules: Rules
) -> list[Comparison]:
    """Return the comparisons of PyTorch's attention, alone and with all correct rules, with a model
    of transformers that runs eager attention; none for other models."""
    if not variants.add_sdpa():
        return []
    (name,) = SDPA
    rules = {name: SDPA}
    if all_rules:
        rules[f"{label} + {name}"] = SDPA | all_rules
    return [
        Comparison(
            row_name,
            (variant, False),
            differs=results.difference(variants[variant]),
        )
        for row_name, variant in rules.items()
    ]


def _label_for_all(names: tuple[str, ...]) -> str:
    """Return the label of all these rules together."""
    return f"all {len(names)} rules" if len(names) > 1 else "".join(names)
