"""Rules compiled for scanning: their patterns, and the nodes that a function must have for a rule
to match in it."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from regraft.dsl.syntax import Predicate
from regraft.matching.compiling import compile_rule
from regraft.matching.necessary_operations import (
    required_calls,
    required_classes,
    required_operations,
)
from regraft.matching.pattern import (
    OWN_CLASS,
    Pattern,
    PatternNode,
    PatternProblem,
    variables,
)
from regraft.matching.whole_bodies import BodyPattern, compile_body
from regraft.rules import Rule, RuleProblem
from regraft.rules.package_requirements import missing_requirements
from regraft.rules.worth import Target, Worth, worth_of
from regraft.structure.library_activations import RUN_TIME_TESTS
from regraft.structure.relevant_functions import Need, Needs


@dataclass(frozen=True, slots=True, eq=False)
class CompiledRule:
    """A rule with its patterns, in the order of its alternatives.

    withheld  the reason why no place of the rule may be rewritten, whatever matches; "" where
    places may be
    worth     what the rule is worth on the user's target; None where nobody has asked, and for
    rules of users
    gainless  whether it is withheld because it gains nothing there
    """

    rule: Rule
    patterns: tuple[Pattern, ...]
    bodies: tuple[BodyPattern, ...] = ()
    withheld: str = ""
    worth: Worth | None = None
    gainless: bool = False

    @property
    def decorates(self) -> bool:
        """Return whether the rule marks definitions instead of rewriting what they compute."""
        return any(pattern.decorator is not None for pattern in self.patterns)

    @property
    def needs(self) -> tuple[Needs, ...]:
        """The nodes that each pattern cannot match without."""
        return tuple(_needs_of(pattern, self.rule.syntax.where) for pattern in self.patterns)


def _needs_of(pattern: Pattern, where: tuple[Predicate, ...]) -> Needs:
    """Return the nodes without which a pattern cannot match and fulfil the conditions of its
    rule."""
    own_conditions = _conditions_of(pattern, where)
    return (
        frozenset(_need(node) for node in pattern.nodes if _needs_word(node))
        | {Need(op, name) for op, name in required_calls(pattern, own_conditions)}
        | {Need(op) for op in required_operations(own_conditions)}
        | {Need("class", name) for name in required_classes(own_conditions)}
    )


def _conditions_of(pattern: Pattern, where: tuple[Predicate, ...]) -> tuple[Predicate, ...]:
    """Return the conditions all of whose variables a pattern has: others are about another
    alternative of the rule."""
    operands = (operand for node in pattern.nodes for _, operand in node.args)
    own_names = {
        *pattern.producers,
        *pattern.layers,
        *(node.layer for node in pattern.nodes),
        *(name for operand in operands for name in variables(operand)),
    }
    return tuple(
        predicate
        for predicate in where
        if all(name in own_names for operand in predicate.args for name in variables(operand))
    )


@dataclass(frozen=True, slots=True)
class RuleIndex:
    """Rules by an operation that a body needs so that one of their patterns can match in it.

    needs     the nodes that each pattern of the rules cannot match without
    numbers   the numbers of the rules, by an operation; "" for those that need none
    """

    rules: tuple[CompiledRule, ...]
    needs: tuple[Needs, ...]
    numbers: Mapping[str, tuple[int, ...]]

    def rules_for(self, ops: Collection[str]) -> Iterator[CompiledRule]:
        """Yield the rules that may match in a body with some operations, in their order."""
        numbers = {number for op in ("", *ops) for number in self.numbers.get(op, ())}
        return (self.rules[number] for number in sorted(numbers))


@functools.lru_cache(maxsize=8)
def rule_index(rules: tuple[CompiledRule, ...]) -> RuleIndex:
    """Return the index of rules, from the cache for those of one of the last files."""
    frequencies = Counter(op for rule in rules for pattern in rule.patterns for op in pattern.ops)
    numbers: dict[str, dict[int, None]] = {}
    for number, rule in enumerate(rules):
        for pattern in rule.patterns:
            rarest = min(pattern.ops, key=lambda op: (frequencies[op], op), default="")
            numbers.setdefault(rarest, {})[number] = None
    return RuleIndex(
        rules,
        tuple(needs for rule in rules for needs in rule.needs),
        {op: tuple(rule_numbers) for op, rule_numbers in numbers.items()},
    )


def _needs_word(node: PatternNode) -> bool:
    """Return whether a function that has the node shows that by a word in its text."""
    return node.is_required and not node.is_glue and node.name != OWN_CLASS


def _need(node: PatternNode) -> Need:
    """Return what the function needs so that this node of a pattern can match in it."""
    return Need(
        node.op, node.name if node.op == "call" else "", node.chosen or node.op in RUN_TIME_TESTS
    )


def compile_rules(
    rules: Sequence[Rule],
) -> tuple[tuple[CompiledRule, ...], tuple[RuleProblem, ...]]:
    """Return the compiled rules, and a problem for each rule that has no meaning for the matcher.

    Rules that need a newer PyTorch than the installed version are withheld: their kernels may
    compute something else.
    """
    compiled, problems = [], []
    for rule in rules:
        try:
            bodies = tuple(map(compile_body, rule.syntax.bodies))
            reason = _too_old_torch(rule)
            compiled.append(CompiledRule(rule, compile_rule(rule.syntax), bodies, withheld=reason))
        except PatternProblem as problem:
            line, column = (problem.at.line, problem.at.column) if problem.at else (1, 1)
            problems.append(RuleProblem(str(rule.path), line, column, problem.message))
    return tuple(compiled), tuple(problems)


def _too_old_torch(rule: Rule) -> str:
    """Return the reason to withhold a rule that needs a newer PyTorch than the installed version;
    "" for other rules."""
    needs = (need for need in rule.syntax.needs if need.package == "torch")
    missing = missing_requirements(needs)
    return f"needs {missing[0]}, and here is an older version" if missing else ""


def are_tested(rules: Sequence[CompiledRule]) -> bool:
    """Return whether all rules that may rewrite something are built in and keep what callers
    see."""
    return all(
        rule.rule.is_built_in and rule.rule.syntax.safety != "contract"
        for rule in rules
        if not rule.withheld
    )


def withhold_contract_rules(rules: Sequence[CompiledRule], remedy: str) -> tuple[CompiledRule, ...]:
    """Return the rules, withholding every place of those that change what callers see (safety
    contract).

    remedy  the action by which the user has these rules applied, as the end of a sentence
    """
    reason = f"changes what callers see (safety contract): only with {remedy}"
    return tuple(
        replace(rule, withheld=reason) if rule.rule.syntax.safety == "contract" else rule
        for rule in rules
    )


def with_worth(
    rules: Sequence[CompiledRule], target: Target, remedy: str = ""
) -> tuple[CompiledRule, ...]:
    """Return the rules with their worth on a target.

    remedy  the action by which the user has rules applied that do not pay there, as the end of a
    sentence; with it every place of these rules is withheld
    """
    return tuple(_judged(rule, worth_of(rule.rule, target), remedy) for rule in rules)


def _judged(rule: CompiledRule, worth: Worth | None, remedy: str) -> CompiledRule:
    """Return a rule with its worth, withheld where that is no gain and there is a remedy."""
    objection = worth.objection if worth is not None and remedy and not rule.withheld else ""
    if worth is None or not objection:
        return replace(rule, worth=worth)
    return replace(
        rule,
        worth=worth,
        withheld="; ".join(filter(None, (f"{objection}: only with {remedy}", worth.advice))),
        gainless=worth.verdict == "gains nothing",
    )
