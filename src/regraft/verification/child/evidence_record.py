"""The findings of the child: a record of evidence for each definition, the journal of steps, and
the result file, saved so that a crash loses nothing."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regraft.verification.child.comparison_terms import Largest
from regraft.verification.child.read_files import files_read, folders_of_packages

# The fields of a record that are sets, with the same key in its JSON.
_SET_FIELDS = (
    "instances",
    "models",
    "drivers",
    "modes",
    "dtypes",
    "seeds",
    "shapes",
    "dropout",
)


@dataclass(slots=True)
class Record:
    """Evidence about a definition; sets are written sorted.

    `refuted` is the reason for a refutation, "" for none, and `failure` the recipe of its
    reproducer. `replays` counts comparisons of the definition by itself, `wholes` those of models
    that ran it, `gradients` those with gradients. `domain` has labels by kind of inputs beyond the
    recorded ones. `given_up` holds second derivatives that a kernel of the changed version lacks,
    `losses` other properties that it lost without being wrong, `also_compared` what agreed beyond
    single calls, `captured` whether graphs of the definition were compared. `seconds` is the
    processor time of runs of both versions for the definition.
    """

    refuted: str = ""
    failure: dict[str, Any] = field(default_factory=dict)
    replays: int = 0
    gradients: int = 0
    wholes: int = 0
    instances: set[str] = field(default_factory=set)
    models: set[str] = field(default_factory=set)
    drivers: set[str] = field(default_factory=set)
    modes: set[str] = field(default_factory=set)
    dtypes: set[str] = field(default_factory=set)
    seeds: set[int] = field(default_factory=set)
    shapes: set[str] = field(default_factory=set)
    dropout: set[str] = field(default_factory=set)
    given_up: set[str] = field(default_factory=set)
    also_compared: set[str] = field(default_factory=set)
    losses: set[str] = field(default_factory=set)
    domain: dict[str, set[str]] = field(default_factory=dict)
    mutants: dict[str, Any] = field(default_factory=dict)
    captured: bool = False
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    largest: Largest = field(default_factory=Largest)

    def note(self, text: str) -> None:
        """Add a note at the end of `notes`, unless it is there."""
        if text not in self.notes:
            self.notes.append(text)

    def as_json(self) -> dict[str, Any]:
        """Return the evidence as JSON values: all fields but `captured`, sets as sorted lists, and
        the largest differences by number format. Some keys are in words with spaces."""
        plain_fields = ("refuted", "failure", "replays", "gradients", "wholes", "notes", "mutants")
        evidence: dict[str, Any] = {name: getattr(self, name) for name in plain_fields}
        evidence.update({name: sorted(getattr(self, name)) for name in _SET_FIELDS})
        evidence["seconds"] = round(self.seconds, 1)
        evidence["domain"] = {kind: sorted(labels) for kind, labels in sorted(self.domain.items())}
        evidence["given up"] = sorted(self.given_up)
        evidence["losses"] = sorted(self.losses)
        evidence["also compared"] = sorted(self.also_compared)
        evidence["largest difference"] = dict(sorted(self.largest.absolute.items()))
        evidence["largest relative difference"] = dict(sorted(self.largest.relative.items()))
        evidence["half precision errors"] = dict(sorted(self.largest.errors.items()))
        return evidence


class Ledger:
    """All records, the journal of steps and the result file that the parent reads."""

    def __init__(
        self,
        folder: Path,
        definitions: tuple[str, ...],
        deadline: float,
        clock: float = math.inf,
        avoided: frozenset[str] = frozenset(),
        package: str = "",
    ) -> None:
        """Open the journal in `folder` to append to it, and start with an empty record for each
        definition.

        deadline: in processor time of this process. clock: the time.monotonic() at which the parent
        is about to end this process. avoided: steps that ended an earlier process. package: the
        top-level package under test.
        """
        self.folder = folder
        self.package = package
        self.avoided = avoided  # steps that ended an earlier process
        self.records = {name: Record() for name in definitions}
        self.skipped: list[str] = []
        self.levels: list[str] = []
        self.fatal: dict[str, Any] = {}
        self.gaps: dict[str, list[tuple[int, str]]] = {}
        self.gaps_in_original: dict[str, list[tuple[int, str]]] = {}
        self.relatives_not_run: dict[str, list[str]] = {}
        self.builders_not_run: dict[str, list[str]] = {}
        self.constant_fields: dict[str, list[str]] = {}
        self.uncontrolled: dict[str, list[str]] = {}
        self.implementations: set[str] = set()
        self.deadline, self.clock = deadline, clock
        self.complete: set[str] = set()
        self.own_model = ""  # the user's slow model, on which every change has to be compared
        self.is_own_model_pending = False
        self.returned_classes: frozenset[str] = frozenset()
        self.missing_modules: tuple[str, ...] = ()  # that are stood in for
        self._seconds: dict[str, float] = {}
        self._journal = (folder / "journal.jsonl").open("a", encoding="utf-8")

    @contextmanager
    def step(self, side: str, definition: str, description: str) -> Iterator[None]:
        """Announce a step in the journal before the body, and its end after it, unless `side` is
        "original": then note the duration of the step instead, the measure for the changed
        version's next step of the definition. An error in the body leaves the step without an
        end. The processor time of the body is added to the record of the definition, if it has
        one."""
        started, work = time.time(), time.process_time()
        entry: dict[str, Any] = {"time": started, "work": work}
        entry.update(side=side, definition=definition, what=description)
        if side == "changed":
            entry["original_seconds"] = self._seconds.get(definition, 0.0)
        self._announce(entry)
        try:
            yield
        finally:
            if definition in self.records:
                self.records[definition].seconds += time.process_time() - work
        if side == "original":
            self._seconds[definition] = time.time() - started
        else:
            self._announce({"time": time.time(), "side": "", "definition": "", "what": "between"})

    def _announce(self, entry: dict[str, Any]) -> None:
        """Write an entry to the journal at once."""
        self._journal.write(json.dumps(entry) + "\n")
        self._journal.flush()

    def note_level(self, level: str) -> None:
        """Add a level of evidence that was reached to `levels`, unless it is there."""
        if level not in self.levels:
            self.levels.append(level)

    def skip(self, reason: str) -> None:
        """Add the reason why a comparison was not made to `skipped`, unless it is there."""
        if reason not in self.skipped:
            self.skipped.append(reason)

    def refuse_driver(self, reason: str, place: tuple[str, int] = ("", 0)) -> None:
        """Set as the fatal error why the user's driver is of no use, with the file and line where
        it fails; ("", 0) for the driver itself."""
        self.fatal = {"what": "driver", "reason": reason, "file": place[0], "line": place[1]}

    def refute(self, definition: str, reason: str, failure: dict[str, Any]) -> None:
        """Set the reason and the recipe for a reproducer (`failure`) in the record of a definition;
        do nothing where it is refuted already. Raises KeyError for a name without a record."""
        record = self.records[definition]
        if not record.refuted:
            record.refuted = reason
            record.failure = failure

    def unrefuted(self) -> tuple[str, ...]:
        """Return the names of the definitions that are not refuted yet."""
        return tuple(name for name, record in self.records.items() if not record.refuted)

    def refuted(self) -> tuple[str, ...]:
        """Return the names of the refuted definitions."""
        return tuple(name for name, record in self.records.items() if record.refuted)

    def is_late(self) -> bool:
        """Return whether this process has used up its processor time or its time on the clock: the
        comparisons so far are then the result."""
        return time.process_time() > self.deadline or time.monotonic() > self.clock

    def deadline_within(self, seconds: float) -> float:
        """Return the processor time at which a task has to end that may take `seconds`, or a
        quarter of the remaining time if that is less; the present time where no time remains."""
        now = time.process_time()
        return now + max(0.0, min(seconds, (self.deadline - now) / 4))

    def save(self) -> None:
        """Write all records and notes to `folder`/result.json; the file is replaced in one step,
        never half-written."""
        files = files_read(self.folder, self.package)
        result = {
            "fatal": self.fatal,
            "levels": self.levels,
            "skipped": self.skipped,
            "gaps": self.gaps,
            "gaps before": self.gaps_in_original,
            "relatives not run": self.relatives_not_run,
            "builders not run": self.builders_not_run,
            "constant fields": self.constant_fields,
            "uncontrolled": self.uncontrolled,
            "complete": sorted(self.complete),
            "own model": self.own_model,
            "own model pending": self.is_own_model_pending,
            "returned classes": sorted(self.returned_classes),
            "missing modules": sorted(self.missing_modules),
            "implementations": sorted(self.implementations),
            "files read": files,
            "files absent": [path for path in files if not os.path.exists(path)],
            "folders of packages": folders_of_packages(),
            "records": {name: record.as_json() for name, record in self.records.items()},
        }
        draft = self.folder / "partial.json"
        draft.write_text(json.dumps(result), encoding="utf-8")
        os.replace(draft, self.folder / "result.json")
