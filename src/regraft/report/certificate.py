"""What verification showed, as a small page in Markdown for a pull request."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterable, Mapping, Sequence

from regraft import __version__
from regraft.verify import Verdict

_LISTED = 8  # labels of one kind that are shown


def certificate(file: str, verdicts: Sequence[Verdict]) -> str:
    """Return the page: one row for each definition, what was compared, and how to see a difference."""
    counts = {status: sum(one.status == status for one in verdicts) for status in ("proved", "unproven", "refuted")}
    lines = [
        f"### `{file}`: " + ", ".join(f"{number} {status}" for status, number in counts.items()),
        "",
        f"Regraft {__version__}, {', '.join(_versions())}. Original and changed version ran side by side.",
        "",
        "| definition | verdict | number formats | shapes | models | comparisons | also compared |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_row(one) for one in verdicts]
    for one in verdicts:
        if one.evidence.get("domain"):
            domain = domain_summary(one.evidence["domain"])
            lines += ["", f"**{one.definition}** ran beyond its first inputs: {domain}"]
        if kills := kills_summary(one.evidence.get("mutants")):
            lines += ["", f"**{one.definition}**: the inputs kill {kills}"]
        if one.reason:
            lines += ["", f"**{one.definition}** is {one.status}: {one.reason}"]
        if one.evidence.get("given up"):
            lines += ["", f"**{one.definition}** gives up: {_joined(one.evidence['given up'])}"]
        for loss in loss_lines(one):
            lines += ["", f"**{one.definition}** loses {loss}"]
        if one.evidence.get("reproducer"):
            lines += ["", f"Shown by `python {one.evidence['reproducer']}`"]
    return "\n".join(lines)


def loss_lines(verdict: Verdict) -> tuple[str, ...]:
    """What the original can be given to and the changed version cannot, each with the error."""
    return tuple(map(str, _items(verdict.evidence.get("losses"))))


def _row(one: Verdict) -> str:
    found = one.evidence
    number = sum(int(str(found.get(name, 0))) for name in ("replays", "wholes"))
    cells = [
        f"`{one.definition}`", one.status, _joined(found.get("dtypes")), str(len(_items(found.get("shapes")))),
        _joined(found.get("models")), str(number), _joined(found.get("also compared")),
    ]  # fmt: skip
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def domain_summary(domain: object) -> str:
    """Return the kinds of inputs and conditions with those of each kind; of many the first and how many more."""
    kinds = domain.items() if isinstance(domain, Mapping) else ()
    return "; ".join(f"{kind}: {_listed([_short(str(label)) for label in labels])}" for kind, labels in kinds)


def _short(label: str) -> str:
    """Return a label without what its kind says already."""
    return label.removeprefix("values: ").removeprefix("mask: ").removesuffix(" in every dimension of that size")


def _listed(labels: Sequence[str]) -> str:
    more = len(labels) - _LISTED
    return ", ".join(labels[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def kills_summary(score: object) -> str:
    """Return how many generated mutants of the changed lines the inputs kill, and which survive; "" without any."""
    if not isinstance(score, Mapping) or not score.get("of"):
        return ""
    survivors = _items(score.get("survived"))
    listed = f" (survivors: {'; '.join(map(str, survivors[:3]))})" if survivors else ""
    return f"{score['killed']} of {score['of']} mutants of the changed lines{listed}"


def _items(value: object) -> list[object]:
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else []


def _joined(value: object) -> str:
    return ", ".join(map(str, _items(value)))


def _versions() -> Iterable[str]:
    yield f"Python {platform.python_version()}"
    for name in ("torch", "transformers"):
        try:
            yield f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
