"""The JSON report of `regraft check`, whose shape is a contract: keys are added, never changed or
removed. `schemas/check.schema.json` states it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from regraft.report.text import help_text
from regraft.rules.package_requirements import missing_requirements, requirement
from regraft.rules.worth import Worth
from regraft.scanning import FileReport, Finding, Miss
from regraft.scanning.edits_by_finding import Key, key_of
from regraft.source.text import Edit, SourceError

if TYPE_CHECKING:
    from regraft.verification import Verdict


@dataclass(slots=True)
class Collector:
    """A collector of the report, file by file, so that a file's analysis can be freed when its
    findings are known.

    explain  also list near misses and places that were not followed
    missing  number of findings by the package that they wait for
    is_fixing  whether files are rewritten
    fixable    number of findings that could be fixed
    remaining  number of those that were not, or have appeared in rewritten code
    warnings   what is wrong with comments that ignore findings
    ignored    number of findings that comments suppress, by comment and rule
    accepted   number of findings that the baseline accepts
    ignores_added  number of findings for which comments were written
    notebooks  number of notebooks below the paths, which are not read
    verdicts   verdicts on the definitions that were verified
    sources    UTF-8 forms of the files whose edits were added, by the files' names
    passed_over  number of files of tests, examples and vendored code that were not rewritten
    gainless   number of findings that gain nothing, by the target; they are not reported
    worths     worth of the rules that have findings, by the rule's id and the target
    """

    explain: bool = False
    is_fixing: bool = False
    findings: list[dict[str, Any]] = field(default_factory=list)
    misses: list[dict[str, Any]] = field(default_factory=list)
    opaque: list[dict[str, Any]] = field(default_factory=list)
    errors: list[SourceError] = field(default_factory=list)
    warnings: list[SourceError] = field(default_factory=list)
    missing: Counter[str] = field(default_factory=Counter)
    files: int = 0
    classes: int = 0
    nodes: int = 0
    fixable: int = 0
    remaining: int = 0
    notebooks: int = 0
    ignored: int = 0
    accepted: int = 0
    ignores_added: int = 0
    verdicts: list[Verdict] = field(default_factory=list)
    sources: dict[str, bytes] = field(default_factory=dict)
    passed_over: int = 0
    gainless: Counter[str] = field(default_factory=Counter)
    worths: dict[tuple[str, str], Worth] = field(default_factory=dict)

    def add(self, report: FileReport, edits: Mapping[Key, tuple[Edit, ...]] | None = None) -> None:
        """Add the report of one file.

        edits  the edits of its findings, where the format shows them; then the report has its
               source
        """
        self.files += report.is_file
        self.classes += report.classes
        self.nodes += report.nodes
        self.errors += report.errors
        self.ignored += sum(len(comment.suppressed) for comment in report.ignores)
        if edits and report.source is not None:
            self.sources[report.file] = report.source.text
        self.findings += [
            finding_as_json(finding, _edits_as_json(report, (edits or {}).get(key_of(finding), ())))
            for finding in report.findings
        ]
        self.worths.update(
            ((finding.rule.id, finding.worth.target), finding.worth)
            for finding in report.findings
            if finding.fixable and finding.worth is not None
        )
        self.missing.update(
            package
            for finding in report.findings
            for package in missing_requirements(finding.rule.syntax.needs)
        )
        if self.explain:
            self.misses += [_miss_as_json(miss) for miss in report.misses]
            self.opaque += [
                {
                    "file": report.file,
                    "line": opaque_node.line,
                    "column": opaque_node.column,
                    "reason": opaque_node.reason,
                }
                for opaque_node in report.opaque
            ]

    def count_remaining(self, report: FileReport, remaining: int | None = None) -> None:
        """Count what could be fixed in a file, and how much of it remains: all without a number.

        What appears in rewritten code counts as a finding, too.
        """
        fixable = sum(finding.fixable for finding in report.findings)
        remaining = fixable if remaining is None else remaining
        self.fixable += max(fixable, remaining)
        self.remaining += remaining

    @property
    def withheld(self) -> int:
        """The number of findings that are withheld."""
        return sum(finding["status"] == "withheld" for finding in self.findings)

    @property
    def exit_status(self) -> int:
        """The exit status of a check: 2 after errors, 1 where something could be fixed, else 0."""
        return 2 if self.errors else int(self.remaining > 0)

    def summary(self) -> dict[str, int]:
        """Return the totals: findings = fixable + withheld, and fixable = fixed + remaining."""
        return {
            "files": self.files,
            "findings": self.fixable + self.withheld,
            "fixable": self.fixable,
            "withheld": self.withheld,
            "fixed": self.fixable - self.remaining if self.is_fixing else 0,
            "remaining": self.remaining,
            "ignored": self.ignored,
            "accepted": self.accepted,
            "gainless": self.gainless.total(),
            "warnings": len(self.warnings),
            "errors": len(self.errors),
        }

    def statistics(self) -> list[tuple[str, int]]:
        """Return the number of findings of each rule, the most frequent first."""
        return Counter(finding["rule"] for finding in self.findings).most_common()

    def data(self, seconds: float) -> dict[str, Any]:
        """Return the whole report, ready for JSON."""
        stats = {
            "files": self.files,
            "classes": self.classes,
            "nodes": self.nodes,
            "seconds": round(seconds, 3),
        }
        data: dict[str, Any] = {
            "version": 1,
            "findings": self.findings,
            "errors": [error_as_json(error) for error in self.errors],
            "warnings": [error_as_json(warning) for warning in self.warnings],
            "summary": self.summary(),
            "statistics": dict(self.statistics()),
        }
        if self.is_fixing:
            from regraft.verification import to_json

            data["verdicts"] = to_json(self.verdicts)["verdicts"]
        data["stats"] = stats
        data["missing"] = dict(sorted(self.missing.items()))
        if self.explain:
            data["near_misses"] = self.misses
            data["not_followed"] = self.opaque
        return data


def finding_as_json(finding: Finding, edits: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    return {
        "rule": finding.rule.id,
        "file": finding.file,
        "class": finding.cls,
        "function": finding.function,
        "start": {"line": finding.start[0], "column": finding.start[1]},
        "end": {"line": finding.end[0], "column": finding.end[1]},
        "lines": list(finding.lines),
        "guard": finding.guard,
        "mode": finding.mode,
        "safety": finding.rule.syntax.safety,
        "status": "fixable" if finding.fixable else "withheld",
        "reason": finding.reason,
        "kernel": finding.kernel,
        "needs": [requirement(need) for need in finding.rule.syntax.needs],
        "worth": _worth_as_json(finding.worth) if finding.worth is not None else None,
        "message": finding.rule.syntax.summary,
        "help": help_text(finding),
        "fixable": finding.fixable,
        "fingerprint": finding.fingerprint,
        "edits": list(edits),
    }


def _worth_as_json(worth: Worth) -> dict[str, Any]:
    """Return the verdict on a rule's worth, with its best case, which is None where none gains."""
    best = worth.best
    return {
        "target": worth.target,
        "verdict": worth.verdict,
        "best": None
        if best is None
        else {
            "time": list(best.time),
            "memory": best.memory,
            "mode": best.mode,
            "shape": best.shape,
        },
    }


def _edits_as_json(report: FileReport, edits: Iterable[Edit]) -> list[dict[str, Any]]:
    """Return edits with their places, as bytes of the UTF-8 form of the file, and as lines and
    columns."""
    if not edits:
        return []
    assert report.source is not None
    position = report.source.position

    def place(byte: int) -> dict[str, int]:
        line, column = position(byte)
        return {"byte": byte, "line": line, "column": column}

    return [
        {"start": place(edit.span.start), "end": place(edit.span.end), "text": edit.text}
        for edit in edits
    ]


def error_as_json(error: SourceError) -> dict[str, Any]:
    return {
        "file": error.file,
        "line": error.line,
        "column": error.column,
        "message": error.message,
    }


def _miss_as_json(miss: Miss) -> dict[str, Any]:
    return {
        "rule": miss.rule.id,
        "file": miss.file,
        "line": miss.line,
        "column": miss.column,
        "scope": miss.scope,
        "reason": miss.reason,
    }
