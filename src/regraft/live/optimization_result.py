"""The result of rewriting a model: the methods that changed, and the places that did not."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regraft.live.changed_definitions import Name
from regraft.live.rewritten_classes import restore
from regraft.report.counted_nouns import count


@dataclass(frozen=True, slots=True)
class Change:
    """A method that runs in a rewritten form.

    file     the source file of the method
    method   its dotted name, or that of a function
    rules    the rules that rewrote the method or a function that it calls
    modules  the number of modules that run it
    """

    file: str
    method: str
    rules: tuple[str, ...]
    modules: int


@dataclass(frozen=True, slots=True)
class Unchanged:
    """A place that stays as it is, and the reason; the file and the place are "" where there is
    none."""

    file: str
    place: str
    reason: str


@dataclass(slots=True)
class Optimization:
    """The result of `optimize` on a model; as a context manager it ends with `restore`.

    changes     the methods that run in a rewritten form
    unchanged   the places that stay as they are
    lock        the lock file that chose the rules; None without one
    applicable  the ids of the rules that have something to rewrite in the model's files, each by
                itself
    unproved    the definitions, by file and name, that verification left out
    """

    model: Any
    changes: list[Change] = field(default_factory=list)
    unchanged: list[Unchanged] = field(default_factory=list)
    lock: Path | None = None
    applicable: set[str] = field(default_factory=set)
    unproved: set[Name] = field(default_factory=set)

    def add_unchanged(self, file: str, place: str, reason: str) -> None:
        """Append to `unchanged` a place that stays as it is, with the reason."""
        self.unchanged.append(Unchanged(file, place, reason))

    @property
    def rules(self) -> tuple[str, ...]:
        """The ids of the rules that changed something, in order."""
        return tuple(sorted({rule for change in self.changes for rule in change.rules}))

    def __enter__(self) -> Optimization:
        return self

    def __exit__(self, *problem: object) -> None:
        """Give the model its original classes back."""
        restore(self.model)

    def __str__(self) -> str:
        """Return the changes and the places that stay as they are, one a line below a summary."""
        lines = [
            f"{type(self.model).__name__}: {count(len(self.changes), 'method')} rewritten,"
            f" {count(len(self.unchanged), 'place')} left"
        ]
        lines += [f"  rules from {self.lock}"] if self.lock else []
        lines += [
            f"  {Path(change.file).name} {change.method}: {', '.join(change.rules)}"
            f" ({count(change.modules, 'module')})"
            for change in self.changes
        ]
        lines += [
            f"  left {Path(place.file).name} {place.place}: {place.reason}"
            for place in self.unchanged
        ]
        return "\n".join(lines)


def dotted_name(cls: str | None, function: str) -> str:
    """Return the name of a method with its class, or of a function alone."""
    return f"{cls}.{function}" if cls else function
