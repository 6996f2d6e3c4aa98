"""The choice of a file's patches that may be written: those that running both versions proves."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from regraft.scanning import CompiledRule, FileReport, Finding, check_source, rewrite_file
from regraft.scanning.compiled_rules import are_tested
from regraft.verification import Verdict
from regraft.verification.top_level_definitions import definitions_by_name

# from a rewritten text, and the definitions that were proved before, to the verdicts
Verify = Callable[[bytes, Collection[str]], tuple[Verdict, ...]]
_TRIES = 4  # the most sets of rules that are tried for a definition after the first


@dataclass(frozen=True, slots=True)
class Fix:
    """A rewritten file.

    data      its bytes
    applied   the findings whose patches are in it
    verdicts  the verdicts on its definitions
    left_out  the verdicts because of which definitions stay as they are
    rejected  pairs of a definition and a rule that is not applied in it because others are
              proved without it, or none is
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

    A definition is left out after other rules for its places, and fewer of several rules, were
    tried. `unproven` also takes what is neither proved nor refuted; only findings that are `wanted`
    are rewritten. Raise RuleDefect and VerifyError.
    """
    assert report.source is not None
    allowed = ("proved", "unproven") if unproven else ("proved",)
    left_out: dict[str, Verdict] = {}
    searches: dict[str, _RuleSearch] = {}
    proofs = _Proofs(verify, are_tested(rules))
    while True:
        rejected_rules = frozenset(
            (name, rule) for name, search in searches.items() for rule in search.rejected
        )
        is_allowed = _wanted(left_out.keys(), rejected_rules, wanted)
        rewritten, applied = rewrite_file(report, rules, wanted=is_allowed)
        verdicts = proofs.verdicts_on(rewritten) if applied else ()
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
            search = searches.setdefault(name, _RuleSearch(name))
            if not (_may_depend_on_rule(verdict) and search.advance(applied, report)):
                left_out[name] = verdict


@dataclass(slots=True)
class _Proofs:
    """The verdicts on the rewrites of a file, of which each leaves away more than the one before.

    tested  whether every rule is tested to compute the same by itself; else a rewrite may be right
            only beside another one, and has to be proved anew without it
    proved  the verdicts on proved definitions, by their names, with the syntax tree as text
    """

    verify: Verify
    tested: bool
    proved: dict[str, tuple[str, Verdict]] = field(default_factory=dict)

    def verdicts_on(self, rewritten: bytes) -> tuple[Verdict, ...]:
        """Verify a rewrite. Definitions that tested rules rewrote, and that were proved beside
        others, keep their evidence where they are all that is left, and nothing differs now."""
        definitions = definitions_by_name(ast.parse(rewritten))
        trees = {name: ast.dump(node) for name, node in definitions.items()}
        confirmed = {
            name: verdict
            for name, (tree, verdict) in self.proved.items()
            if self.tested and trees.get(name) == tree
        }
        verdicts = self.verify(rewritten, frozenset(confirmed))
        if confirmed.keys() >= {verdict.definition for verdict in verdicts}:
            return tuple(_with_evidence(verdict, confirmed) for verdict in verdicts)
        self.proved = {
            verdict.definition: (trees[verdict.definition], verdict)
            for verdict in verdicts
            if verdict.status == "proved" and verdict.definition in trees
        }
        return verdicts


def _with_evidence(verdict: Verdict, confirmed: Mapping[str, Verdict]) -> Verdict:
    """Return a verdict that is proved with the evidence of the confirmed one; another as it is."""
    if verdict.status != "proved":
        return verdict
    return replace(confirmed[verdict.definition], lines=verdict.lines)


@dataclass(slots=True)
class _RuleSearch:
    """The search for rules of one definition that are proved together.

    rejected  the rules that are not applied in it
    pending   further sets of rules to leave away, the next one last
    tried     the number of sets so far
    """

    definition: str
    rejected: frozenset[str] = frozenset()
    pending: list[frozenset[str]] = field(default_factory=list)
    tried: int = 0

    def advance(self, applied: Sequence[Finding], report: FileReport) -> bool:
        """Reject another set of rules after those that were applied were not proved; return False
        where none is left to try.

        First come other rules for the places of the rewrite, then fewer of several rules.
        """
        own_findings = [
            finding for finding in applied if self.definition in changed_definitions(finding)
        ]
        own_rules = sorted({finding.rule.id for finding in own_findings})
        if len(own_rules) > 1:
            self.pending += [self.rejected | {rule} for rule in reversed(own_rules)]
        if replaceable_rules := self._replaceable_rules(own_findings, report):
            self.pending.append(self.rejected | replaceable_rules)
        self.tried += 1
        if not self.pending or self.tried > _TRIES:
            return False
        self.rejected = self.pending.pop()
        return True

    def _replaceable_rules(
        self, own_findings: Sequence[Finding], report: FileReport
    ) -> frozenset[str]:
        """Return the applied rules for whose places the file has a finding of another rule that was
        neither applied nor rejected."""
        excluded = {finding.rule.id for finding in own_findings} | self.rejected
        alternatives = [
            finding
            for finding in report.findings
            if finding.patch is not None and self.definition in changed_definitions(finding)
            if finding.rule.id not in excluded
        ]
        in_first_round = set(map(id, report.findings))
        return frozenset(
            finding.rule.id
            for finding in own_findings
            if id(finding) in in_first_round
            and any(_share_lines(finding, alternative) for alternative in alternatives)
        )


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
    """Return whether another rewrite of a definition may be proved.

    What brought nothing to life, or ran none of the changed lines, runs no other rewrite of these
    places either, and what takes too long takes as long again.
    """
    evidence = verdict.evidence
    is_unreached = evidence.get("lines not executed") and not evidence.get("lines executed")
    has_run = bool(evidence.get("replays")) and not is_unreached
    return verdict.status == "refuted" or (has_run and not verdict.is_cut_short)


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


def fix_with_home(
    fix: Fix,
    report: FileReport,
    rules: Sequence[CompiledRule],
    home: str,
    wanted: Callable[[Finding], bool] = lambda _: True,
) -> bytes:
    """Return the bytes of the same rewrite with the ops imported from `home`, which need not exist
    yet."""
    assert report.source is not None
    left_out = {base_name(verdict.definition) for verdict in fix.left_out}
    report_with_home = check_source(report.source, rules, home)
    is_allowed = _wanted(left_out, fix.rejected, wanted)
    return rewrite_file(report_with_home, rules, home, wanted=is_allowed)[0]
