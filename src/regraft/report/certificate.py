"""The certificate: the results of verification as a small page in Markdown for a pull request."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence

from regraft import __version__
from regraft.verification import Verdict

_MAX_LABELS = 8  # number of labels of one kind that are shown


def certificate(file: str, verdicts: Sequence[Verdict]) -> str:
    """Return the page: a row for each definition, its comparisons, and the command that shows a
    difference."""
    counts = {
        status: sum(verdict.status == status for verdict in verdicts)
        for status in ("proved", "unproven", "refuted")
    }
    lines = [
        f"### `{file}`: " + ", ".join(f"{number} {status}" for status, number in counts.items()),
        "",
        (
            f"Regraft {__version__}, {', '.join(_versions())}. Original and changed version ran"
            " side by side."
        ),
        "",
        "| definition | verdict | number formats | shapes | models | comparisons | also compared |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_row(verdict) for verdict in verdicts]
    remarks = [*_reasons(verdicts), *(text for verdict in verdicts for text in _remarks(verdict))]
    for remark in dict.fromkeys(remarks):
        lines += ["", remark]
    return "\n".join(lines)


def _reasons(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield a paragraph for each reason, with the definitions for which it holds."""
    names: dict[tuple[str, str], list[str]] = {}
    for verdict in verdicts:
        if verdict.reason:
            names.setdefault((verdict.status, verdict.reason), []).append(verdict.definition)
    for (status, reason), definitions in names.items():
        subject = ", ".join(f"**{definition}**" for definition in definitions)
        yield f"{subject} {'is' if len(definitions) == 1 else 'are'} {status}: {reason}"


def _remarks(verdict: Verdict) -> Iterator[str]:
    """Yield the paragraphs below the table that a verdict needs."""
    evidence, name = verdict.evidence, f"**{verdict.definition}**"
    if evidence.get("domain"):
        yield f"{name} ran beyond its first inputs: {domain_summary(evidence['domain'])}"
    if kills := kills_summary(evidence.get("mutants")):
        yield f"{name}: the inputs kill {kills}"
    if missing := missing_summary(evidence):
        yield f"Not installed: {missing}"
    if evidence.get("given up"):
        yield f"{name} gives up: {_join_members(evidence['given up'])}"
    for loss in loss_lines(verdict):
        yield f"{name} loses {loss}"
    if evidence.get("reproducer"):
        yield f"Shown by `python {evidence['reproducer']}`"


def missing_summary(evidence: Mapping[str, object]) -> str:
    """Return the modules that are not installed, and what follows; "" for none."""
    modules = _members(evidence.get("missing modules"))
    pronoun = "it" if len(modules) == 1 else "them"
    names = ", ".join(map(str, modules))
    return names and (
        f"{names}; what uses {pronoun} was not compared (install {pronoun}, or name an"
        f" interpreter that has {pronoun}: --python)"
    )


def loss_lines(verdict: Verdict) -> tuple[str, ...]:
    """Return the uses of the original that the changed version no longer bears, each with the
    error."""
    return tuple(map(str, _members(verdict.evidence.get("losses"))))


def _row(verdict: Verdict) -> str:
    """Return the table row of a verdict."""
    evidence = verdict.evidence
    comparisons = sum(int(str(evidence.get(name, 0))) for name in ("replays", "wholes"))
    cells = [
        f"`{verdict.definition}`",
        verdict.status,
        _join_members(evidence.get("dtypes")),
        str(len(_members(evidence.get("shapes")))),
        _join_members(evidence.get("models")),
        str(comparisons),
        _join_members(evidence.get("also compared")),
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def domain_summary(domain: object) -> str:
    """Return the kinds of inputs and conditions with the labels of each kind, of many the first and
    the number."""
    return "; ".join(f"{kind}: {_first_labels(labels)}" for kind, labels in domain_kinds(domain))


def domain_kinds(domain: object) -> list[tuple[str, list[str]]]:
    """Return the kinds of inputs and conditions, each with its labels in short, empty ones left
    out; none for what is no domain."""
    kinds = domain.items() if isinstance(domain, Mapping) else ()
    return [
        (str(kind), [_short_label(str(label)) for label in labels if label])
        for kind, labels in kinds
    ]


def _short_label(label: str) -> str:
    """Return a label without the words that repeat its kind."""
    return (
        label.removeprefix("values: ")
        .removeprefix("mask: ")
        .removesuffix(" in every dimension of that size")
    )


def _first_labels(labels: Sequence[str]) -> str:
    """Return the first labels, joined, with the number of the other ones."""
    surplus = len(labels) - _MAX_LABELS
    return ", ".join(labels[:_MAX_LABELS]) + (f" and {surplus} more" if surplus > 0 else "")


def kills_summary(score: object) -> str:
    """Return how many generated mutants of the changed lines the inputs kill, and which survive; ""
    for no mutants."""
    if not isinstance(score, Mapping) or not score.get("of"):
        return ""
    survivors = _members(score.get("survived"))
    survivor_text = f" (survivors: {'; '.join(map(str, survivors[:3]))})" if survivors else ""
    return f"{score['killed']} of {score['of']} mutants of the changed lines{survivor_text}"


def _members(value: object) -> list[object]:
    """Return the members of a collection; none for a string or another value."""
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else []


def _join_members(value: object) -> str:
    return ", ".join(map(str, _members(value)))


def _versions() -> Iterable[str]:
    """Yield the names and versions of Python and of the libraries that are installed here."""
    yield f"Python {platform.python_version()}"
    for name in ("torch", "transformers"):
        try:
            yield f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
