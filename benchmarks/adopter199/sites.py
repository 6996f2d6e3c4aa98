"""Places that a tool found against a list of places where a rule applies."""

from __future__ import annotations

import collections
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any


@dataclass(frozen=True, slots=True)
class Place:
    """One place that a tool found: the rule's name without its pack, the file and the lines that
    matched."""

    rule: str
    file: str
    lines: tuple[int, ...]
    where: str = ""

    @property
    def model(self) -> str:
        return PurePath(self.file).name.removeprefix("modeling_").removesuffix(".py")


@dataclass(frozen=True, slots=True)
class Site:
    """One place where a rule applies, as the list says."""

    rule: str
    model: str
    first: int
    last: int
    listed: str
    confidence: str
    text: str

    def hit_by(self, place: Place) -> bool:
        return any(self.first <= line <= self.last for line in place.lines)


@dataclass(slots=True)
class Score:
    """Sites of one rule that were found and missed, and places that are no site of a model in the
    list."""

    found: list[Site] = field(default_factory=list)
    missed: list[Site] = field(default_factory=list)
    extra: list[Place] = field(default_factory=list)


def read(path: Path) -> tuple[Site, ...]:
    """The sites of a JSON list."""
    return tuple(_site(row) for row in json.loads(path.read_text()))


def _site(row: Mapping[str, Any]) -> Site:
    text = (
        f"{row.get('cls') or ''}.{row.get('function') or ''} [{row['listed']}]"
        f" {row.get('note') or ''}".strip()
    )
    return Site(
        row["rule"], row["model"], row["line"], row["end"], row["listed"], row["confidence"], text
    )


def score(
    sites: Iterable[Site], places: Iterable[Place], confidence: Collection[str]
) -> dict[str, Score]:
    """Scores by rule; a site of another confidence counts neither as found nor as missed, but is no
    extra either."""
    sites = tuple(sites)
    by_key: dict[tuple[str, str], list[Place]] = collections.defaultdict(list)
    for place in places:
        by_key[place.rule, place.model].append(place)
    scores: dict[str, Score] = collections.defaultdict(Score)
    used: set[int] = set()
    for site in sites:
        hits = [place for place in by_key[site.rule, site.model] if site.hit_by(place)]
        used.update(map(id, hits))
        if site.confidence in confidence:
            one = scores[site.rule]
            (one.found if hits else one.missed).append(site)
    known = {site.model for site in sites}
    for (rule, model), found in by_key.items():
        scores[rule].extra += [place for place in found if model in known and id(place) not in used]
    return scores
