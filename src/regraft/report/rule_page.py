"""The page of a rule: what it does, its notation, and what it was measured to be worth."""

from __future__ import annotations

from collections.abc import Iterator

from regraft.rules import Rule
from regraft.rules.worth import TARGETS, worth_of


def page_of(rule: Rule) -> str:
    """Return the page of a rule as Markdown, with its notation and its worth."""
    text = rule.path.read_text("utf-8")
    return "\n".join(
        (
            rule.page.rstrip(),
            "\n## Rule\n",
            f"```\n{text.rstrip()}\n```",
            *_worth_section(rule),
        )
    )


def _worth_section(rule: Rule) -> Iterator[str]:
    """Yield the lines of the page about what a built-in rule was measured to be worth."""
    worths = [worth for target in TARGETS if (worth := worth_of(rule, target)) and worth.cases]
    if not worths:
        return
    yield "\n## Worth\n"
    yield (
        "Time is that of the original divided by that of the rewrite, with its 95% interval;"
        " memory is the peak of the rewrite divided by that of the original.\n"
    )
    yield "| target | module | size | shape | mode | time | memory |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for worth in worths:
        for case in worth.cases:
            low, median, high = case.time
            yield (
                f"| {worth.target} | {case.subject} | {case.size} | {case.shape} | {case.mode}"
                f" | {median:.2f} ({low:.2f}-{high:.2f}) | {case.memory:.2f} |"
            )
    for worth in worths:
        verdict = worth.objection or f"pays on {worth.target}"
        yield "\n" + "; ".join(filter(None, (verdict, worth.advice)))
