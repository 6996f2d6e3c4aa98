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
    """

    data: bytes
    applied: tuple[Finding, ...]
    verdicts: tuple[Verdict, ...]
    left_out: tuple[Verdict, ...]


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

    `unproven` also takes what is neither proved nor refuted; only findings that are `wanted` are
    rewritten. Raise RuleDefect and VerifyError.
    """
    assert report.source is not None
    allowed = ("proved", "unproven") if unproven else ("proved",)
    left_out: dict[str, Verdict] = {}
    while True:
        rewritten, applied = rewrite_file(
            report,
            rules,
            wanted=lambda finding: (
                wanted(finding) and left_out.keys().isdisjoint(changed_definitions(finding))
            ),
        )
        verdicts = verify(rewritten) if applied else ()
        rejected = {
            base_name(verdict.definition): verdict
            for verdict in verdicts
            if verdict.status not in allowed
        }
        if not rejected:
            return Fix(rewritten, applied, verdicts, tuple(left_out.values()))
        applied_definitions = {name for finding in applied for name in changed_definitions(finding)}
        left_out.update(_blamed(rejected, applied_definitions))


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
    return rewrite_file(
        report_with_home,
        rules,
        home,
        wanted=lambda finding: left_out.isdisjoint(changed_definitions(finding)),
    )[0]
