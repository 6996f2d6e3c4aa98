"""Which of a file's patches may be written: those that running both versions proves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from regraft.scanning import CompiledRule, FileReport, Finding, check_source, rewrite_file
from regraft.verify import Verdict

Verify = Callable[[bytes], tuple[Verdict, ...]]


@dataclass(frozen=True, slots=True)
class Fix:
    """A rewritten file: its bytes, the findings that are applied, the verdicts on it, and what was left out."""

    data: bytes
    applied: tuple[Finding, ...]
    verdicts: tuple[Verdict, ...]
    left_out: tuple[Verdict, ...]


def proved_fix(report: FileReport, rules: Sequence[CompiledRule], verify: Verify, *, unproven: bool = False) -> Fix:
    """Rewrite a file, verify it as a whole, drop the definitions that are not proved, and again until all are.

    `unproven` also takes what is neither proved nor refuted. Raises RuleDefect and VerifyError.
    """
    assert report.source is not None
    allowed = ("proved", "unproven") if unproven else ("proved",)
    left_out: dict[str, Verdict] = {}
    while True:
        data, applied = rewrite_file(report, rules, wanted=lambda one: left_out.keys().isdisjoint(touched(one)))
        verdicts = verify(data) if applied else ()
        bad = {base(one.definition): one for one in verdicts if one.status not in allowed}
        if not bad:
            return Fix(data, applied, verdicts, tuple(left_out.values()))
        known = {name for one in applied for name in touched(one)}
        if not bad.keys() & known:  # not the fault of one definition: a variable of the file, say
            verdict = next(iter(bad.values()))
            bad = {name: replace(verdict, definition=name) for name in known}
        left_out.update({name: one for name, one in bad.items() if name in known})


def definition(finding: Finding) -> str:
    """The top-level definition that a finding is in, as verdicts name it."""
    return (finding.cls or finding.function).partition(".")[0]


def touched(finding: Finding) -> tuple[str, ...]:
    """The definitions that the patch of a finding changes."""
    return (definition(finding), *finding.also)


def base(name: str) -> str:
    """The name of a definition without the number of those that have the same one."""
    return name.partition("#")[0]


def in_house(fix: Fix, report: FileReport, rules: Sequence[CompiledRule], home: str) -> bytes:
    """The same rewrite with the ops imported from `home`, which need not exist while it is verified."""
    assert report.source is not None
    left_out = {base(one.definition) for one in fix.left_out}
    again = check_source(report.source, rules, home)
    return rewrite_file(again, rules, home, wanted=lambda one: left_out.isdisjoint(touched(one)))[0]
