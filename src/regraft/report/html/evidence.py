"""Verdicts and their evidence as the HTML reports show them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regraft.report.certificate import domain_kinds, kills_summary, missing_summary
from regraft.report.counted_nouns import count
from regraft.report.html.page import render
from regraft.report.html.side_by_side import hunks_between

# The evidence that the table of a verdict shows in words of its own.
_COUNTS = (
    ("replays", "recorded call"),
    ("wholes", "run of whole models"),
    ("gradient comparisons", "gradient"),
)
_LISTS = (
    ("models", "models"),
    ("dtypes", "number formats"),
    ("modes", "modes"),
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


def verify_page(
    subject: str,
    verdicts: Iterable[Mapping[str, Any]],
    versions: Mapping[str, tuple[bytes, bytes]],
) -> str:
    """Return the page of `regraft verify`: what changes, the verdict on each definition, and its
    evidence.

    versions  the original and the changed text of each file, in UTF-8
    """
    changes = {file: list(hunks_between(*texts)) for file, texts in versions.items()}
    views = verdict_views(verdicts)
    numbers = {
        status: sum(view.status == status for view in views)
        for status in ("proved", "unproven", "refuted")
    }
    title = f"Regraft: {numbers['proved']} of {count(len(views), 'changed definition')} proved"
    return render(
        "verify.html",
        title=title,
        subject=subject,
        numbers=numbers,
        verdicts=views,
        changes=changes,
    )


def _facts(evidence: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what was compared: numbers of comparisons, the processor time, killed mutants, lists
    of what was tried, and the largest differences."""
    numbers = [_count(int(evidence[key]), noun) for key, noun in _COUNTS if evidence.get(key)]
    facts = [("compared", ", ".join(numbers))] if numbers else []
    if evidence.get("seconds"):
        facts.append(("processor time", f"{evidence['seconds']} s for runs of both versions"))
    if missing := missing_summary(evidence):
        facts.append(("not installed", missing))
    if kills := kills_summary(evidence.get("mutants")):
        facts.append(("mutants", f"the inputs kill {kills}"))
    facts += [
        (name, ", ".join(map(str, evidence[key])))
        for key, name in _LISTS
        if isinstance(evidence.get(key), list | tuple) and evidence[key]
    ]
    if isinstance(evidence.get("shapes"), list | tuple) and evidence["shapes"]:
        facts.append(("shapes of inputs", "; ".join(map(_shapes, evidence["shapes"]))))
    differences = evidence.get("largest relative difference")
    if isinstance(differences, Mapping) and differences:
        sizes = (f"{value:.2g} in {dtype}" for dtype, value in differences.items())
        facts.append(("largest relative difference", ", ".join(sizes)))
    return facts


def _count(number: int, noun: str) -> str:
    """Return a number with a noun, whose first word is put into the plural unless it is 1."""
    first, space, following = noun.partition(" of ")
    return count(number, first) + space + following


def _shapes(text: object) -> str:
    """Return the shapes of the tensors of a call, as `1 x 4 and 8 x 8` for "[[1, 4], [8, 8]]"."""
    shapes = re.findall(r"\[([\d, ]*)\]", str(text))
    return " and ".join(shape.replace(", ", " x ") or "a number" for shape in shapes)
