"""The lock file `regraft.lock.toml`: the rules that `regraft bench --select` found to pay, and
where it measured them.

A rule is pinned by its id and the SHA-256 of its `.rule` file, so that the rules that are applied
are those that were measured. A lock that does not fit the present rules is an error. Other versions
of Regraft and PyTorch, or another device, are noted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regraft import __version__
from regraft.rules.loading import BUILT_IN, Rule, RuleProblem, load_rules
from regraft.source.text import write_atomically
from regraft.source.toml_library import tomllib

NAME = "regraft.lock.toml"
FORMAT = 1
HEAD = (
    "# Written by `regraft bench --select`; `regraft check` and `regraft.optimize` read"
    f" it.\nformat = {FORMAT}\n"
)


class LockError(ValueError):
    """An error of a lock file that cannot be read or does not fit the present rules; one sentence
    says why."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """A rule of a lock.

    sha256    digest of its `.rule` file
    measured  figures that say what the rule was worth
    """

    id: str
    sha256: str
    measured: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lock:
    """The chosen rules, and the circumstances of their choice.

    target    the measured object, as the command line names it
    goal      "fastest" or "smallest"
    mode      "inference" or "training"
    device    "cpu" or "cuda"; `machine` is its name
    measured  figures of all chosen rules together: seconds, speed (low, median, high), bytes
    """

    target: str
    goal: str
    mode: str
    device: str
    machine: str
    torch: str
    rules: tuple[Pinned, ...]
    regraft: str = __version__
    measured: Mapping[str, Any] = field(default_factory=dict)


def nearest(folder: Path) -> Path | None:
    """Return the lock file in a folder, else the one beside the nearest `pyproject.toml` above it;
    None for none."""
    folder = folder.resolve()
    for directory in (folder, *folder.parents):
        if (directory == folder or (directory / "pyproject.toml").is_file()) and (
            directory / NAME
        ).is_file():
            return directory / NAME
        if (directory / "pyproject.toml").is_file():
            return None
    return None


def pin_rule(rule: Rule, measured: Mapping[str, Any]) -> Pinned:
    return Pinned(rule.id, _file_digest(rule), measured)


def write(path: Path, lock: Lock) -> None:
    """Write a lock file, as a whole or not at all; raise OSError."""
    import tomli_w

    document = {
        **{name: getattr(lock, name) for name in _TEXT_FIELDS},
        "measured": dict(lock.measured),
        "rule": [{"id": rule.id, "sha256": rule.sha256, **rule.measured} for rule in lock.rules],
    }
    write_atomically(path, (HEAD + tomli_w.dumps(document)).encode())


def read(path: Path) -> Lock:
    """Return the lock in a file; raise LockError."""
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise LockError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, or not TOML
        raise LockError(f"{path}: is not TOML: {error}") from error
    if document.get("format") != FORMAT or document["format"] is True:
        raise LockError(
            f"{path}: format {document.get('format')!r} is unknown, this version reads format ="
            f" {FORMAT}"
        )
    for name in _TEXT_FIELDS:
        if not isinstance(document.get(name), str):
            raise LockError(f"{path}: {name} is missing or not a text")
    rules, measured = document.get("rule"), document.get("measured", {})
    if not isinstance(rules, list) or not isinstance(measured, dict):
        raise LockError(f"{path}: `rule` has to be a list of tables, `measured` a table")
    return Lock(
        **{name: document[name] for name in _TEXT_FIELDS},
        measured=measured,
        rules=tuple(_parse_entry(path, entry) for entry in rules),
    )


_TEXT_FIELDS = ("regraft", "torch", "device", "machine", "target", "goal", "mode")


def _parse_entry(path: Path, entry: object) -> Pinned:
    """Return the pinned rule of a table in a lock file; raise LockError."""
    if not isinstance(entry, dict) or not all(
        isinstance(entry.get(name), str) for name in ("id", "sha256")
    ):
        raise LockError(f"{path}: every rule needs the texts id and sha256")
    return Pinned(
        entry["id"],
        entry["sha256"],
        {name: value for name, value in entry.items() if name not in ("id", "sha256")},
    )


def locked_rules(
    path: Path, lock: Lock, directories: Sequence[Path] = (BUILT_IN,)
) -> tuple[tuple[Rule, ...], tuple[RuleProblem, ...]]:
    """Return the rules of a lock, and problems of their files.

    Raise LockError for a rule that is not the pinned one.
    """
    if not lock.rules:
        return (), ()
    available_ids = {
        f"{path.parent.name}/{path.stem}"
        for folder in directories
        for path in folder.glob("*/*.rule")
    }
    remedy = f"measure again: regraft bench {lock.target} --mode {lock.mode} --select {lock.goal}"
    for pinned_rule in lock.rules:
        if pinned_rule.id not in available_ids:
            raise LockError(f"{path}: there is no rule {pinned_rule.id} any more; {remedy}")
    rules, problems = load_rules([pinned_rule.id for pinned_rule in lock.rules], (), directories)
    digests = {pinned_rule.id: pinned_rule.sha256 for pinned_rule in lock.rules}
    for rule in rules:
        if _file_digest(rule) != digests[rule.id]:
            raise LockError(
                f"{path}: the rule {rule.id} is not the one that was measured; {remedy}"
            )
    return rules, problems


def notes(lock: Lock, torch: str = "", device: str = "") -> Iterator[str]:
    """Yield the differences between here and where the lock was measured; an empty text is not
    compared."""
    for name, locked_version, current_version in (
        ("Regraft", lock.regraft, __version__),
        ("PyTorch", lock.torch, torch),
        ("device", lock.device, device),
    ):
        if current_version and current_version != locked_version:
            yield f"measured with {name} {locked_version}, here is {current_version}"


def _file_digest(rule: Rule) -> str:
    """Return the SHA-256 of a rule's file."""
    return hashlib.sha256(rule.path.read_bytes()).hexdigest()
