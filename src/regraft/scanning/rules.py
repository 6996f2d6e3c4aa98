"""Rules compiled for scanning: their patterns, and the nodes that a function needs for a rule to match in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from regraft.matching.bodies import BodyPattern, compile_body
from regraft.matching.matcher import called, layers_of, led_to
from regraft.matching.pattern import OWN_CLASS, RUN_TIME_TESTS, Pattern, PatternNode, PatternProblem, compile_rule
from regraft.rules import Rule, RuleProblem
from regraft.rules.requirements import missing
from regraft.structure.relevance import Need, Needs


@dataclass(frozen=True, slots=True, eq=False)
class CompiledRule:
    """A rule with its patterns, in the order of its alternatives.

    withheld  why no place of the rule may be rewritten, whatever matches; "" where places may be
    """

    rule: Rule
    patterns: tuple[Pattern, ...]
    bodies: tuple[BodyPattern, ...] = ()
    withheld: str = ""

    @property
    def decorates(self) -> bool:
        """Whether the rule marks definitions instead of rewriting what they compute."""
        return any(one.decorator is not None for one in self.patterns)

    @property
    def needs(self) -> tuple[Needs, ...]:
        """For each pattern the nodes that it cannot match without."""
        return tuple(
            frozenset(_need(node) for node in one.nodes if _is_seen(node))
            | {Need("call", name) for name in called(one, self.rule.syntax.where)}
            | {Need(op) for op in led_to(self.rule.syntax.where)}
            | {Need("class", name) for name in layers_of(self.rule.syntax.where)}
            for one in self.patterns
        )


def _is_seen(node: PatternNode) -> bool:
    """Whether a function that has the node shows it by a word."""
    return node.required and not node.is_glue and node.name != OWN_CLASS


def _need(node: PatternNode) -> Need:
    return Need(node.op, node.name if node.op == "call" else "", node.chosen or node.op in RUN_TIME_TESTS)


def compile_rules(rules: Sequence[Rule]) -> tuple[tuple[CompiledRule, ...], tuple[RuleProblem, ...]]:
    """Patterns of the rules, and a problem for each rule that has no meaning for the matcher.

    Rules that need a newer PyTorch than the installed version are withheld: their kernels may compute something else.
    """
    compiled, problems = [], []
    for rule in rules:
        try:
            bodies = tuple(map(compile_body, rule.syntax.bodies))
            older = missing(need for need in rule.syntax.needs if need.package == "torch")
            reason = f"needs {older[0]}, and here is an older version" if older else ""
            compiled.append(CompiledRule(rule, compile_rule(rule.syntax), bodies, withheld=reason))
        except PatternProblem as problem:
            line, column = (problem.at.line, problem.at.column) if problem.at else (1, 1)
            problems.append(RuleProblem(str(rule.path), line, column, problem.message))
    return tuple(compiled), tuple(problems)


def withhold_contract_rules(rules: Sequence[CompiledRule], remedy: str) -> tuple[CompiledRule, ...]:
    """Withhold every place of the rules that change what callers see (safety contract).

    remedy  what the user has to do to have them applied, as the end of a sentence
    """
    reason = f"changes what callers see (safety contract): only with {remedy}"
    return tuple(replace(rule, withheld=reason) if rule.rule.syntax.safety == "contract" else rule for rule in rules)
