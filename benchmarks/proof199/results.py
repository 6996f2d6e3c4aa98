"""Results of files, kept in a JSON-lines file: a run that was interrupted goes on where it
stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import regraft

PACKAGE = Path(regraft.__file__).parent


@dataclass(frozen=True, slots=True)
class Patch:
    """One applied patch: its rule, the definition that it is in, and that definition's verdict.

    `loads` says whether the original's checkpoint was loaded strictly into the rewritten model,
    `executed` whether every changed line ran in a comparison that found no difference.
    """

    rule: str
    definition: str
    line: int
    status: str
    reason: str
    loads: bool
    executed: bool


@dataclass(frozen=True, slots=True)
class Result:
    """A file's patches, or why there are none, and how long the verification took."""

    file: str
    patches: tuple[Patch, ...]
    error: str
    seconds: float

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Result:
        return cls(
            data["file"],
            tuple(Patch(**one) for one in data["patches"]),
            data["error"],
            data["seconds"],
        )


def key(original: bytes, changed: bytes) -> str:
    """What a result depends on: both texts, Regraft's version and the source of its verification
    and kernels."""
    digest = hashlib.sha256(regraft.__version__.encode())
    for path in sorted([*PACKAGE.glob("verification/**/*.py"), *PACKAGE.glob("ops/*.py")]):
        digest.update(path.read_bytes())
    for text in (original, changed):
        digest.update(b"\0" + hashlib.sha256(text).digest())
    return digest.hexdigest()


class Store:
    """Results by key; each is on disk as soon as it is known."""

    def __init__(self, path: Path) -> None:
        self._path = path
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:  # a run that was killed left half a line
            path.write_text(whole, encoding="utf-8")
        self._known: dict[str, Result] = dict(filter(None, map(_entry, whole.splitlines())))

    def get(self, name: str) -> Result | None:
        return self._known.get(name)

    def add(self, name: str, result: Result) -> None:
        self._known[name] = result
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": name, "result": asdict(result)}) + "\n")


def _entry(line: str) -> tuple[str, Result] | None:
    """A result with its key; None for one that another version of this file wrote, with other
    fields."""
    data = json.loads(line)
    now = {field.name for field in fields(Patch)}
    return (
        (data["key"], Result.from_json(data["result"]))
        if all(set(p) == now for p in data["result"]["patches"])
        else None
    )


def rows(results: Iterable[Result], rules: Iterable[str]) -> list[list[str]]:
    """The table: for each rule its patches by verdict, how many load the original's checkpoint, how
    many ran."""
    patches = [patch for result in results for patch in result.patches]
    table = [["rule", "patches", "proved", "unproven", "refuted", "loads", "executed"]]
    for rule in (*rules, "total"):
        mine = [patch for patch in patches if rule in (patch.rule, "total")]
        counts = [
            sum(patch.status == status for patch in mine)
            for status in ("proved", "unproven", "refuted")
        ]
        table.append(
            [
                rule,
                *map(
                    str,
                    [len(mine), *counts, sum(p.loads for p in mine), sum(p.executed for p in mine)],
                ),
            ]
        )
    return table
