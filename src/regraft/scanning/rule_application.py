"""The findings of rules in the bodies of a file: matches that neither overlap nor repeat."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from regraft.matching.blocks import find_blocks
from regraft.matching.dependence_on_replacements import body_replacement, match_replacement
from regraft.matching.matcher import find_matches
from regraft.matching.result import Match, NoMatch
from regraft.matching.whole_bodies import find_bodies
from regraft.rules import Rule
from regraft.scanning.compiled_rules import CompiledRule, rule_index
from regraft.scanning.findings import Finding, Miss, body_finding_of, finding_of, withhold
from regraft.source.imports import Imports
from regraft.source.text import SourceFile
from regraft.structure import Module, Structure
from regraft.structure.function_surroundings import Function
from regraft.structure.relevant_functions import Relevance
from regraft.structure.values_and_nodes import Body, Node, Opaque, Replacement


@dataclass(slots=True)
class BodyResults:
    """The results of matching rules with the bodies of a file.

    opaque  the places that were not followed
    nodes   the number of nodes of the bodies
    """

    matches: list[tuple[Rule, Match]] = field(default_factory=list)
    misses: list[Miss] = field(default_factory=list)
    opaque: list[Opaque] = field(default_factory=list)
    nodes: int = 0


def match_bodies(
    module: Module, rules: Sequence[CompiledRule], explain: bool, lines: tuple[int, int] | None
) -> BodyResults:
    """Match every rule with every body, without `explain` only those in which a rule may match, and
    with `lines` only those of functions that start on them."""
    results = BodyResults()
    index = rule_index(tuple(rules))
    relevance = Relevance(module, index.needs)

    def is_wanted(cls: ast.ClassDef | None, function: Function) -> bool:
        return _starts_on(function, lines) and (explain or relevance.may_match(cls, function))

    for structure in module.structures(is_wanted):
        for body in structure.bodies:
            results.nodes += len(body.nodes)
            results.opaque += body.opaque
            for rule in index.rules_for(body.ops):
                matches, misses = _apply_rule(rule, module, structure, body)
                results.matches += ((rule.rule, match) for match in matches)
                results.misses += misses
    return results


def findings_of(
    matches: Sequence[tuple[Rule, Match]],
    module: Module,
    rules: Sequence[CompiledRule],
    imports: Imports,
    lines: tuple[int, int] | None,
) -> list[Finding]:
    """Return the findings of the matches, then those of whole bodies; those of a rule that is
    withheld have no patch."""
    findings = [
        _unless_replaced(finding_of(rule, match, imports), match_replacement(match, module))
        for rule, match in _without_repeats(matches)
    ]
    findings += _body_findings(module, rules, imports, lines)
    reasons = {rule.rule.id: rule.withheld for rule in rules}
    return [withhold(finding, reasons[finding.rule.id]) for finding in findings]


def _body_findings(
    module: Module,
    rules: Sequence[CompiledRule],
    imports: Imports,
    lines: tuple[int, int] | None,
) -> Iterator[Finding]:
    """Yield the findings of whole bodies and of blocks in them."""
    for rule in rules:
        for find_statements in (find_bodies, find_blocks):
            for match in find_statements(rule.bodies, module):
                if _starts_on(match.function, lines):
                    finding = body_finding_of(rule.rule, match, imports)
                    yield _unless_replaced(finding, body_replacement(match, module))


def _starts_on(function: Function, lines: tuple[int, int] | None) -> bool:
    """Return whether a function starts on one of the lines; any does without them."""
    return lines is None or lines[0] <= function.lineno <= lines[1]


def _unless_replaced(finding: Finding, replacement: Replacement | None) -> Finding:
    """Return a finding, withheld for that reason alone where the file replaces a function that the
    place, or the kernel there, runs."""
    if replacement is None:
        return finding
    return withhold(replace(finding, reason=""), replacement.reason)


def _without_repeats(rule_matches: Sequence[tuple[Rule, Match]]) -> Iterator[tuple[Rule, Match]]:
    """Yield the matches less those that inlining repeats: matches that the called function shows by
    itself."""
    own_keys = {
        (rule.id, match.root.expr) for rule, match in rule_matches if match.root.inner is None
    }
    yielded_keys: set[tuple[str, ast.AST, ast.AST | None]] = set()
    for rule, match in rule_matches:
        root = match.root
        is_imported = all(node.in_other_file for node in match.nodes)
        if is_imported and not _is_specialised(root.expr):
            continue
        is_repeated = root.inner is not None and (rule.id, root.inner) in own_keys
        key = (rule.id, root.expr, root.inner)
        if not is_repeated and key not in yielded_keys:
            yielded_keys.add(key)
            yield rule, match


def _is_specialised(call: ast.AST) -> bool:
    """Return whether a call passes a constant.

    The called function may then show in the call what it does not show by itself.
    """
    if not isinstance(call, ast.Call):
        return False
    arguments = (*call.args, *(keyword.value for keyword in call.keywords))
    return any(map(_is_signed_constant, arguments))


def _is_signed_constant(expression: ast.expr) -> bool:
    """Return whether an expression is a constant, or one operator before a constant: `-1`."""
    operand = expression.operand if isinstance(expression, ast.UnaryOp) else expression
    return isinstance(operand, ast.Constant)


def _apply_rule(
    compiled: CompiledRule, module: Module, structure: Structure, body: Body
) -> tuple[list[Match], list[Miss]]:
    """Return the matches and near misses of one rule in one body.

    Of matches that share a node the one of an earlier alternative wins, then the one with more
    nodes.
    """
    matches: list[tuple[int, Match]] = []
    nearest_misses: dict[Node, NoMatch] = {}
    where = compiled.rule.syntax.where
    for number, pattern in enumerate(compiled.patterns):
        for result in find_matches(pattern, where, module, structure, body):
            if isinstance(result, Match):
                matches.append((number, result))
            elif result.depth > 0 and result.depth > getattr(
                nearest_misses.get(result.root), "depth", 0
            ):
                nearest_misses[result.root] = result
    chosen, covered = _disjoint_matches(matches)
    scope = f"{structure.name}.{body.name}" if structure.cls is not None else body.name
    misses = [
        Miss(
            compiled.rule,
            module.source.path,
            *position_of(module.source, miss.at),
            scope,
            miss.reason,
        )
        for root, miss in nearest_misses.items()
        if root not in covered and root.inner is None
    ]
    return chosen, misses


def _disjoint_matches(matches: Sequence[tuple[int, Match]]) -> tuple[list[Match], set[Node]]:
    """Return matches that share no node, chosen in order of precedence, and the nodes that they
    cover.

    matches  each with the number of its alternative
    """
    covered: set[Node] = set()
    chosen: list[Match] = []
    for _, match in sorted(matches, key=_precedence):
        if covered.isdisjoint(match.nodes):
            covered.update(match.nodes)
            chosen.append(match)
    return chosen, covered


def _precedence(candidate: tuple[int, Match]) -> tuple[int, int, int]:
    """Return the sort key of a match: the number of its alternative, then more nodes first, then
    the time of its root."""
    number, match = candidate
    return number, -len(match.nodes), match.root.time


def position_of(source: SourceFile, node: ast.AST) -> tuple[int, int]:
    """Return the line and column at which a node starts."""
    return source.position(source.span(node).start)
