"""Verdicts and their evidence as the HTML reports show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regraft.report.certificate import domain_kinds, kills_summary
from regraft.report.html.page import render
from regraft.report.words import count

# The evidence that the table of a verdict shows in words of its own.
_COUNTS = (
    ("replays", "recorded call compared"),
    ("wholes", "whole run compared"),
    ("gradient comparisons", "comparison of gradients"),
)
_LISTS = (
    ("models", "models"),
    ("dtypes", "number formats"),
    ("modes", "modes"),
    ("shapes", "shapes"),
    ("also compared", "also compared"),
    ("lines executed", "changed lines that ran"),
    ("lines not executed", "changed lines that did not run"),
    ("losses", "what the change loses"),
    ("given up", "what was given up"),
    ("notes", "notes"),
)


@dataclass(frozen=True, slots=True)
class VerdictView:
    """A verdict as a section shows it.

    anchor      the section's id in the page
    facts       names of what was compared, each with its values as text
    domain      the kinds of inputs and conditions beyond the first ones, each with its labels
    reproducer  the script that shows a difference again; "" for none
    """

    anchor: str
    file: str
    definition: str
    status: str
    reason: str
    facts: Sequence[tuple[str, str]]
    domain: Sequence[tuple[str, Sequence[str]]]
    reproducer: str


def verdict_views(verdicts: Iterable[Mapping[str, Any]]) -> list[VerdictView]:
    """Return the views of verdicts, which are as the JSON report has them."""
    return [
        VerdictView(
            f"verdict-{number}",
            verdict["file"],
            verdict["class"],
            verdict["status"],
            verdict["reason"],
            _facts(verdict["evidence"]),
            domain_kinds(verdict["evidence"].get("domain")),
            str(verdict["evidence"].get("reproducer") or ""),
        )
        for number, verdict in enumerate(verdicts, 1)
    ]


def verify_page(subject: str, verdicts: Iterable[Mapping[str, Any]]) -> str:
    """Return the page of `regraft verify`: the verdict on each definition, and its evidence."""
    views = verdict_views(verdicts)
    numbers = {
        status: sum(view.status == status for view in views)
        for status in ("proved", "unproven", "refuted")
    }
    title = f"Regraft: {numbers['proved']} of {count(len(views), 'changed definition')} proved"
    return render("verify.html", title=title, subject=subject, numbers=numbers, verdicts=views)


def _facts(evidence: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what was compared: numbers of comparisons, killed mutants, lists of what was tried,
    and the largest differences."""
    numbers = [
        count(int(evidence[key]), noun) for key, noun in _COUNTS if evidence.get(key)
    ]
    facts = [("comparisons", ", ".join(numbers))] if numbers else []
    if kills := kills_summary(evidence.get("mutants")):
        facts.append(("mutants", f"the inputs kill {kills}"))
    facts += [
        (name, ", ".join(map(str, evidence[key])))
        for key, name in _LISTS
        if isinstance(evidence.get(key), list | tuple) and evidence[key]
    ]
    differences = evidence.get("largest relative difference")
    if isinstance(differences, Mapping) and differences:
        sizes = (f"{value:.2g} in {dtype}" for dtype, value in differences.items())
        facts.append(("largest relative difference", ", ".join(sizes)))
    return facts
