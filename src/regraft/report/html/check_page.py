"""The HTML report of `regraft check`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regraft.report.counted_nouns import count
from regraft.report.html.evidence import VerdictView, verdict_views
from regraft.report.html.page import render
from regraft.report.html.side_by_side import Row, hunks
from regraft.report.text import worth_text
from regraft.rules.worth import Worth, by_gain

if TYPE_CHECKING:
    from regraft.report.json_report import Collector


@dataclass(frozen=True, slots=True)
class FindingView:
    """A finding as its card shows it.

    anchor   the card's id in the page
    data     the finding as in the JSON report
    place    file, line and column
    owner    the class or function at the top level that it stands in; "" at module level
    worth    what it is worth on the target; "" where nobody has asked
    hunks    the rows of each part of the file that changes; none where it is withheld
    verdict  the verdict on its definition; None where nothing was run
    """

    anchor: str
    data: Mapping[str, Any]
    place: str
    owner: str
    worth: str
    hunks: Sequence[Sequence[Row]]
    verdict: VerdictView | None


@dataclass(frozen=True, slots=True)
class RuleView:
    """The findings of one rule: how many can be fixed and are withheld, and its worth."""

    name: str
    message: str
    fixable: int
    withheld: int
    worth: str


def check_page(total: Collector, seconds: float) -> str:
    """Return the page of a check: findings by worth with their diffs, the verdicts on what was run,
    and what is withheld, with reasons.

    total  the totals, with the texts of files in `sources`
    """
    data = total.data(seconds)
    data["findings"] = sorted(data["findings"], key=lambda finding: _order(finding, total))
    verdicts = verdict_views(data.get("verdicts", ()))
    numbers = data["summary"]
    return render(
        "check.html",
        title=f"Regraft: {count(numbers['findings'], 'finding')}",
        summary=numbers,
        is_fixing=total.is_fixing,
        seconds=seconds,
        findings=list(_finding_views(data["findings"], total, verdicts)),
        rules=list(_rule_views(data["findings"], total)),
        files=Counter(finding["file"] for finding in data["findings"]).most_common(),
        verdicts=verdicts,
        reasons=_reasons(data["findings"]),
        near_misses=data.get("near_misses", ()),
        not_followed=data.get("not_followed", ()),
        errors=data["errors"],
        warnings=data["warnings"],
        missing=data["missing"],
    )


def _finding_views(
    findings: Sequence[Mapping[str, Any]], total: Collector, verdicts: Sequence[VerdictView]
) -> Iterator[FindingView]:
    """Yield the cards of findings."""
    verdict_by_name = {(verdict.file, verdict.definition): verdict for verdict in verdicts}
    uses: Counter[str] = Counter()
    for finding in findings:
        name = f"finding-{finding['fingerprint']}"
        uses[name] += 1
        file, start = finding["file"], finding["start"]
        owner = finding["class"] or (finding["function"] or "").partition(".")[0]
        changes = hunks(total.sources[file], finding["edits"]) if finding["edits"] else ()
        yield FindingView(
            name if uses[name] == 1 else f"{name}-{uses[name]}",
            finding,
            f"{file}:{start['line']}:{start['column']}",
            owner,
            worth_text(_worth_of(finding, total)),
            list(changes),
            verdict_by_name.get((file, owner)),
        )


def _order(finding: Mapping[str, Any], total: Collector) -> tuple[object, ...]:
    """Return the key that sorts findings: what can be fixed first, the largest gain first, then by
    place."""
    worth = _worth_of(finding, total)
    gain = (math.inf, math.inf) if worth is None else by_gain(worth)
    start = finding["start"]
    return not finding["fixable"], gain, finding["file"], start["line"], start["column"]


def _worth_of(finding: Mapping[str, Any], total: Collector) -> Worth | None:
    """Return what a finding is worth on its target; None where nobody has asked, and where it is
    withheld."""
    if not finding["fixable"] or finding["worth"] is None:
        return None
    return total.worths[finding["rule"], finding["worth"]["target"]]


def _rule_views(findings: Sequence[Mapping[str, Any]], total: Collector) -> Iterator[RuleView]:
    """Yield the rules that have findings, in the order of their first ones."""
    findings_by_rule: dict[str, list[Mapping[str, Any]]] = {}
    for finding in findings:
        findings_by_rule.setdefault(finding["rule"], []).append(finding)
    for name, members in findings_by_rule.items():
        fixable = sum(finding["fixable"] for finding in members)
        yield RuleView(
            name,
            members[0]["message"],
            fixable,
            len(members) - fixable,
            worth_text(_worth_of(members[0], total)),
        )


def _reasons(findings: Sequence[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """Return why findings are withheld, each reason with its number, the most frequent first."""
    return Counter(
        finding["reason"] for finding in findings if not finding["fixable"]
    ).most_common()
