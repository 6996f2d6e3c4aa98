"""The report of `regraft check` as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from regraft.report.counted_nouns import count
from regraft.rules.worth import Worth, by_gain
from regraft.scanning import FileReport, Finding
from regraft.source.text import SourceError

if TYPE_CHECKING:
    from regraft.report.json_report import Collector

Paint = Callable[..., str]


def plain(text: str, **_: object) -> str:
    """Return the text without colour."""
    return text


def concise(finding: Finding, paint: Paint = plain) -> str:
    """Return the line `file:line:col rule [safety] sentence` of a finding."""
    place = paint(f"{finding.file}:{finding.start[0]}:{finding.start[1]}", bold=True)
    rule = paint(finding.rule.id, fg="cyan")
    text = f"{place} {rule} [{finding.rule.syntax.safety}] {finding.rule.syntax.summary}"
    return text if finding.fixable else f"{text} {paint('(withheld)', fg='yellow')}"


def full(finding: Finding, paint: Paint = plain) -> Iterator[str]:
    """Yield the concise line, the code with a caret frame, and either the change or the obstacle to
    it."""
    yield concise(finding, paint)
    number = finding.start[0]
    line = finding.text.replace("\t", " ")
    end = finding.end[1] if finding.end[0] == number else len(line) + 1
    gutter = " " * len(str(number))
    yield f"{gutter} |"
    yield f"{number} | {line}"
    yield (
        f"{gutter} |"
        f" {' ' * (finding.start[1] - 1)}{paint('^' * max(end - finding.start[1], 1), fg='red')}"
    )
    if finding.fixable:
        yield f"{gutter} = help: {help_text(finding)}"
        if worth := worth_text(finding.worth):
            yield f"{gutter} = worth: {worth}"
        if finding.mode == "version":
            tests = " and ".join(finding.tests)
            yield (
                f"{gutter} = note: only where {tests}; the original code stays as the other branch"
            )
    else:
        yield f"{gutter} = {paint('note', fg='yellow')}: {help_text(finding)}"
    yield ""


def help_text(finding: Finding) -> str:
    """Return what can be done about a finding, or why its rewrite is withheld."""
    if not finding.fixable:
        return f"withheld: {finding.reason}"
    lines = ", ".join(map(str, finding.lines))
    word = "line" if len(finding.lines) == 1 else "lines"
    return f"{change_text(finding)} (mode {finding.mode}; reads {word} {lines})"


def change_text(finding: Finding) -> str:
    """Return what the rewrite of a finding does."""
    does = "mark it for a kernel" if finding.mode == "decorate" else "replace it"
    return f"{finding.kernel} can {does}"


def worth_text(worth: Worth | None) -> str:
    """Return the best measured case of a rule that pays on its target, of another why it does not;
    "" where nobody has asked."""
    if worth is None:
        return ""
    return worth.objection or f"measured on {worth.target}: at best {worth.best}"


def worth_lines(total: Collector) -> Iterator[str]:
    """Yield a line for each rule that gains on a target, the largest gain first; nothing for a
    single one, whose findings say it."""
    counts = Counter(
        (finding["rule"], finding["worth"]["target"])
        for finding in total.findings
        if finding["fixable"] and finding["worth"] is not None
    )
    gaining = [(key, worth) for key, worth in total.worths.items() if worth.best is not None]
    if len(gaining) > 1:
        width = max(len(rule) for (rule, _), _ in gaining)
        for key, worth in sorted(gaining, key=lambda entry: by_gain(entry[1])):
            yield f"{counts[key]:6}  {key[0]:{width}}  {worth_text(worth)}"


def explanations(report: FileReport, paint: Paint = plain) -> Iterator[str]:
    """Yield a line for each near miss and each place that was not followed."""
    for miss in report.misses:
        place = paint(f"{miss.file}:{miss.line}:{miss.column}", bold=True)
        yield f"{place} {paint(miss.rule.id, fg='cyan')} no match in {miss.scope}: {miss.reason}"
    for opaque in report.opaque:
        yield (
            f"{paint(f'{report.file}:{opaque.line}:{opaque.column}', bold=True)} not followed:"
            f" {opaque.reason}"
        )


def error(source_error: SourceError, paint: Paint = plain) -> str:
    """Return the line `file:line:col error: message`, without the parts that are not known."""
    return f"{_place(source_error, paint)} {paint('error', fg='red')}: {source_error.message}"


def warning(source_error: SourceError, paint: Paint = plain) -> str:
    """Return the line `file:line:col warning: message`."""
    return f"{_place(source_error, paint)} {paint('warning', fg='yellow')}: {source_error.message}"


def _place(source_error: SourceError, paint: Paint) -> str:
    place = ":".join(
        str(part)
        for part in (source_error.file, source_error.line or "", source_error.column or "")
        if part
    )
    return paint(place, bold=True)


def summary(total: Collector) -> str:
    """Return one line of totals, which add up."""
    numbers = total.summary()
    parts = [count(numbers["findings"], "finding")]
    if numbers["findings"]:
        withheld = f", {numbers['withheld']} withheld" if numbers["withheld"] else ""
        parts[0] += f" ({numbers['fixable']} fixable{withheld})"
    if total.is_fixing and numbers["fixable"]:
        parts.append(f"{numbers['fixed']} fixed")
        parts.append(f"{numbers['remaining']} not fixed")
    parts.append(count(total.files, "file"))
    if total.errors:
        parts.append(count(len(total.errors), "error"))
    return ", ".join(parts)
