"""Outcomes of mutants, kept in a JSON-lines file: a run that was interrupted goes on where it
stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import regraft

OUTCOMES = ("refuted", "unproven", "proved", "error")
PACKAGE = Path(regraft.__file__).parent


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the verifier says of one mutant.

    `kind` is the mutant's, or that of right edits; `outcome` is one of `OUTCOMES`; `reason` is that
    of the first verdict that is not proved; `contract` what `--contract` was given, empty where the
    verifier has no such option; `source` stands for the verifier's own text.
    """

    pair: str
    source: str
    name: str
    kind: str
    file: str
    line: int
    definition: str
    description: str
    differs: str
    outcome: str
    reason: str
    contract: str
    time_limit: float
    seconds: float


def pair_key(original: bytes, changed: bytes) -> str:
    """Return a key of two texts."""
    return hashlib.sha256(
        b"".join(hashlib.sha256(text).digest() for text in (original, changed))
    ).hexdigest()


def source_key(package: Path = PACKAGE) -> str:
    """Return a key of the verifier's version and source."""
    digest = hashlib.sha256(regraft.__version__.encode())
    for path in sorted([*package.glob("verification/**/*.py"), *package.glob("ops/*.py")]):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


class Store:
    """Outcomes by the mutant's texts and the verifier's source; each is on disk as soon as it is
    known.

    With `any_source` those of another version of the verifier count too, the latest of them.
    """

    def __init__(self, path: Path, source: str, any_source: bool = False) -> None:
        self._path = path
        self._source = source
        self._any_source = any_source
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:  # a run that was killed left half a line
            path.write_text(whole, encoding="utf-8")
        self._outcomes: dict[tuple[str, str], Outcome] = {}
        for outcome in filter(None, map(_outcome, whole.splitlines())):
            self._outcomes[outcome.pair, self._version(outcome.source)] = outcome

    def get(self, pair: str) -> Outcome | None:
        return self._outcomes.get((pair, self._version(self._source)))

    def add(self, outcome: Outcome) -> None:
        self._outcomes[outcome.pair, self._version(outcome.source)] = outcome
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(outcome)) + "\n")

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self._outcomes.values())

    def _version(self, source: str) -> str:
        return "" if self._any_source else source


def _outcome(line: str) -> Outcome | None:
    """Read an outcome; None for one that another version of this file wrote, with other fields."""
    data: dict[str, Any] = json.loads(line)
    return Outcome(**data) if set(data) == {field.name for field in fields(Outcome)} else None
