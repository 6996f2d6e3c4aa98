"""The choice of a file's patches that may be written: those that running both versions proves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from regraft.scanning import CompiledRule, FileReport, Finding, check_source, rewrite_file
from regraft.verify import Verdict

Verify = Callable[[bytes], tuple[Verdict, ...]]


@dataclass(frozen=True, slots=True)
class Fix:
    """A rewritten file.

    data      its bytes
    applied   the findings whose patches are in it
    verdicts  the verdicts on its definitions
    left_out  the verdicts because of which definitions stay as they are
    rejected  pairs of a definition and a rule that was not proved there, in whose place another
              rule was tried
    """

    data: bytes
    applied: tuple[Finding, ...]
    verdicts: tuple[Verdict, ...]
    left_out: tuple[Verdict, ...]
    rejected: frozenset[tuple[str, str]] = frozenset()


def proved_fix(
    report: FileReport,
    rules: Sequence[CompiledRule],
    verify: Verify,
    *,
    unproven: bool = False,
    wanted: Callable[[Finding], bool] = lambda _: True,
) -> Fix:
    """Rewrite and verify a file, leaving out the definitions that are not proved, until all others
    are.

    Where other rules apply to the places of a rewrite that is not proved, these are tried before
    the definition is left out. `unproven` also takes what is neither proved nor refuted; only
    findings that are `wanted` are rewritten. Raise RuleDefect and VerifyError.
    """
    assert report.source is not None
    allowed = ("proved", "unproven") if unproven else ("proved",)
    left_out: dict[str, Verdict] = {}
    rejected_rules: frozenset[tuple[str, str]] = frozenset()
    while True:
        is_allowed = _wanted(left_out.keys(), rejected_rules, wanted)
        rewritten, applied = rewrite_file(report, rules, wanted=is_allowed)
        verdicts = verify(rewritten) if applied else ()
        rejected = {
            base_name(verdict.definition): verdict
            for verdict in verdicts
            if verdict.status not in allowed
        }
        if not rejected:
            left_out_verdicts = tuple(left_out.values())
            return Fix(rewritten, applied, verdicts, left_out_verdicts, rejected_rules)
        applied_definitions = {name for finding in applied for name in changed_definitions(finding)}
        for name, verdict in _blamed(rejected, applied_definitions).items():
            replaceable_rules = _replaceable_rules(name, applied, report, rejected_rules)
            if replaceable_rules and _may_depend_on_rule(verdict):
                rejected_rules |= {(name, rule) for rule in replaceable_rules}
            else:
                left_out[name] = verdict


def _wanted(
    left_out: Collection[str],
    rejected_rules: frozenset[tuple[str, str]],
    wanted: Callable[[Finding], bool] = lambda _: True,
) -> Callable[[Finding], bool]:
    """Return a function that tells whether a finding may be applied: it is wanted, it changes no
    definition that is left out, and its rule is not rejected for any that it changes."""

    def is_wanted(finding: Finding) -> bool:
        names = changed_definitions(finding)
        pairs = {(name, finding.rule.id) for name in names}
        is_rejected = any(name in left_out for name in names) or (rejected_rules & pairs)
        return not is_rejected and wanted(finding)

    return is_wanted


def _may_depend_on_rule(verdict: Verdict) -> bool:
    """Return whether another rewrite of a definition may be proved: what brought nothing to life
    brings no other rewrite to life either."""
    return verdict.status == "refuted" or bool(verdict.evidence.get("replays"))


def _replaceable_rules(
    name: str,
    applied: Sequence[Finding],
    report: FileReport,
    rejected_rules: frozenset[tuple[str, str]],
) -> set[str]:
    """Return the rules applied in a definition for whose places the file has a finding of another
    rule that was neither applied nor rejected there."""
    in_first_round = {id(finding) for finding in report.findings}
    in_definition = [
        finding
        for finding in applied
        if name in changed_definitions(finding) and id(finding) in in_first_round
    ]
    applied_rules = {finding.rule.id for finding in in_definition}
    alternatives = [
        finding
        for finding in report.findings
        if finding.patch is not None and name in changed_definitions(finding)
        if finding.rule.id not in applied_rules and (name, finding.rule.id) not in rejected_rules
    ]
    return {
        finding.rule.id
        for finding in in_definition
        if any(_share_lines(finding, alternative) for alternative in alternatives)
    }


def _share_lines(finding: Finding, alternative: Finding) -> bool:
    """Return whether two findings are at the same place: the patch of one reaches into that of the
    other."""
    assert finding.patch is not None and alternative.patch is not None
    first, second = finding.patch.extent, alternative.patch.extent
    return first.start < second.end and second.start < first.end


def _blamed(rejected: Mapping[str, Verdict], definitions: Collection[str]) -> dict[str, Verdict]:
    """Return the verdicts because of which definitions are left out, by the definition's name.

    rejected     the verdicts that do not allow the rewrite, at least one
    definitions  the definitions that patches change
    """
    blamed = {name: verdict for name, verdict in rejected.items() if name in definitions}
    if blamed:
        return blamed
    # not the fault of one definition: a variable of the file, say
    verdict = next(iter(rejected.values()))
    return {name: replace(verdict, definition=name) for name in definitions}


def definition(finding: Finding) -> str:
    """Return the top-level definition that a finding is in, as verdicts name it."""
    return (finding.cls or finding.function).partition(".")[0]


def changed_definitions(finding: Finding) -> tuple[str, ...]:
    """Return the names of the definitions that the patch of a finding changes."""
    return (definition(finding), *finding.also)


def base_name(name: str) -> str:
    """Return the name of a definition without the number that tells it from others of the same
    name."""
    return name.partition("#")[0]


def fix_with_home(fix: Fix, report: FileReport, rules: Sequence[CompiledRule], home: str) -> bytes:
    """Return the bytes of the same rewrite with the ops imported from `home`, which need not exist
    yet."""
    assert report.source is not None
    left_out = {base_name(verdict.definition) for verdict in fix.left_out}
    report_with_home = check_source(report.source, rules, home)
    return rewrite_file(report_with_home, rules, home, wanted=_wanted(left_out, fix.rejected))[0]
