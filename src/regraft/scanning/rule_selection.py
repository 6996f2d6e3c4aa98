"""The rules that the settings of a project select, for all of its files and for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from regraft.configuration import Settings
from regraft.rules import BUILT_IN, Rule, RuleProblem, load_rules
from regraft.rules.loading import check_selectors, is_selected, rule_paths
from regraft.rules.lock_file import Lock, locked_rules, read
from regraft.rules.worth import chosen_target
from regraft.scanning.compiled_rules import (
    CompiledRule,
    compile_rules,
    with_worth,
    withhold_contract_rules,
)
from regraft.scanning.findings import FileReport, Finding
from regraft.source.text import SourceError


def selected_rules(
    settings: Settings, *, unsafe_remedy: str, worth_remedy: str
) -> tuple[tuple[CompiledRule, ...], list[SourceError]]:
    """Return the rules that settings select, and what is wrong with them or with their selectors.

    Where nothing selects rules, those are withheld that do not pay on the target.

    unsafe_remedy, worth_remedy  the actions by which the user has rules applied that change what
                                 callers see, and those that do not pay, as the end of a sentence
    """
    directories = (BUILT_IN, *settings.rules)
    rules, problems = load_rules(settings.select or (), settings.ignore, directories)
    if selectors := _selectors_by_file(settings):
        problems = (*problems, *check_selectors(selectors, rule_paths(directories)))
    compiled, all_problems = compile_loaded_rules(
        rules, problems, "" if settings.unsafe else unsafe_remedy
    )
    is_explicit = settings.select is not None or settings.applies_all
    judged = with_worth(
        compiled, chosen_target(settings.target), "" if is_explicit else worth_remedy
    )
    return judged, [_located(problem, settings) for problem in all_problems]


def rules_of_lock(
    path: Path, directories: Sequence[Path], unsafe_remedy: str
) -> tuple[Lock, tuple[CompiledRule, ...], list[RuleProblem]]:
    """Return a lock file, the rules that it pins, and their problems.

    directories    packs of the user beside the built-in ones
    unsafe_remedy  as in `selected_rules`; "" applies rules that change what callers see, too

    Raise LockError for a file that does not fit the present rules.
    """
    lock = read(path)
    rules, problems = locked_rules(path, lock, (BUILT_IN, *directories))
    compiled, all_problems = compile_loaded_rules(rules, problems, unsafe_remedy)
    return lock, compiled, all_problems


def compile_loaded_rules(
    rules: Sequence[Rule], problems: Sequence[RuleProblem], unsafe_remedy: str
) -> tuple[tuple[CompiledRule, ...], list[RuleProblem]]:
    """Return the compiled rules, and the problems with those of compiling added.

    With a remedy, as in `selected_rules`, the places of rules that change what callers see are
    withheld.
    """
    compiled, compile_problems = compile_rules(rules)
    if unsafe_remedy:
        compiled = withhold_contract_rules(compiled, unsafe_remedy)
    return compiled, [*problems, *compile_problems]


def _selectors_by_file(settings: Settings) -> list[str]:
    """Return the selectors of all rules that are ignored in some files."""
    return [text for texts in settings.per_file_ignores.values() for text in texts]


def _located(problem: RuleProblem, settings: Settings) -> SourceError:
    """Return a problem as an error; that of a selector of the configuration file gets its place."""
    key = next(_keys_of(problem.path, settings), "") if not problem.line else ""
    if not key:
        return problem.error
    message = f"`{key}` names {problem.path}: {problem.message}"
    return SourceError(str(settings.path), settings.lines[key], 0, message)


def _keys_of(selector: str, settings: Settings) -> Iterator[str]:
    """Yield the keys of the configuration file that state a selector."""
    for key, selectors in (
        ("select", settings.select or ()),
        ("ignore", settings.ignore),
        ("per-file-ignores", _selectors_by_file(settings)),
    ):
        if key in settings.lines and selector in selectors:
            yield key


def rules_for(
    file: Path, rules: tuple[CompiledRule, ...], settings: Settings
) -> tuple[CompiledRule, ...]:
    """Return the rules less those that the settings ignore in a file."""
    selectors = settings.ignored_in(file)
    if not selectors:
        return rules
    return tuple(rule for rule in rules if not is_selected(rule.rule.id, selectors))


def only_rules(report: FileReport, rules: Sequence[CompiledRule]) -> FileReport:
    """Return the report of a file as these rules alone give it, with their worth."""
    worths = {rule.rule.id: rule.worth for rule in rules}
    return replace(
        report,
        findings=tuple(
            replace(finding, worth=worths[finding.rule.id])
            for finding in report.findings
            if finding.rule.id in worths
        ),
        misses=tuple(miss for miss in report.misses if miss.rule.id in worths),
    )


def without_gainless(
    report: FileReport, rules: Sequence[CompiledRule]
) -> tuple[FileReport, tuple[Finding, ...]]:
    """Return the report without the findings that are withheld because they gain nothing, and those
    findings."""
    gainless_rules = {rule.rule.id for rule in rules if rule.gainless}
    shown: list[Finding] = []
    gainless: list[Finding] = []
    for finding in report.findings:
        (gainless if finding.rule.id in gainless_rules else shown).append(finding)
    return replace(report, findings=tuple(shown)), tuple(gainless)
