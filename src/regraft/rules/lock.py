"""`regraft.lock.toml`: the rules that `regraft bench --select` found to pay, and where it measured that.

A rule is pinned by its id and the SHA-256 of its `.rule` file: what was measured is what is applied. A lock that does
not fit the rules that are here is an error. Other versions of Regraft and PyTorch, or another device, are noted.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regraft import __version__
from regraft.rules.loading import BUILT_IN, Rule, RuleProblem, load_rules
from regraft.source.text import write_whole

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAME = "regraft.lock.toml"
FORMAT = 1
HEAD = f"# Written by `regraft bench --select`; `regraft check` and `regraft.optimize` read it.\nformat = {FORMAT}\n"


class LockError(ValueError):
    """A lock file that cannot be read, or that does not fit the rules that are here; one sentence says why."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """A rule of a lock; `sha256` of its file. `measured` says what it was worth."""

    id: str
    sha256: str
    measured: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lock:
    """The chosen rules, and what they were chosen by.

    target    what was measured, as the command line names it
    goal      "fastest" or "smallest"
    mode      "inference" or "training"
    device    "cpu" or "cuda", and `machine` its name
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
    """The lock file of a folder: in it, or beside the nearest `pyproject.toml` above it."""
    folder = folder.resolve()
    for one in (folder, *folder.parents):
        if (one == folder or (one / "pyproject.toml").is_file()) and (one / NAME).is_file():
            return one / NAME
        if (one / "pyproject.toml").is_file():
            return None
    return None


def pinned(rule: Rule, measured: Mapping[str, Any]) -> Pinned:
    return Pinned(rule.id, _digest(rule), measured)


def write(path: Path, lock: Lock) -> None:
    """Write a lock file, whole or not at all; raises OSError."""
    import tomli_w

    data = {
        **{name: getattr(lock, name) for name in _TEXTS},
        "measured": dict(lock.measured),
        "rule": [{"id": one.id, "sha256": one.sha256, **one.measured} for one in lock.rules],
    }
    write_whole(path, (HEAD + tomli_w.dumps(data)).encode())


def read(path: Path) -> Lock:
    """Read a lock file; raises LockError."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise LockError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # not UTF-8, or not TOML
        raise LockError(f"{path}: is not TOML: {error}") from error
    if data.get("format") != FORMAT:
        raise LockError(f"{path}: format {data.get('format')!r} is unknown, this version reads format = {FORMAT}")
    for name in _TEXTS:
        if not isinstance(data.get(name), str):
            raise LockError(f"{path}: {name} is missing or not a text")
    rules, measured = data.get("rule"), data.get("measured", {})
    if not isinstance(rules, list) or not isinstance(measured, dict):
        raise LockError(f"{path}: `rule` has to be a list of tables, `measured` a table")
    return Lock(
        **{name: data[name] for name in _TEXTS}, measured=measured,
        rules=tuple(_pinned(path, one) for one in rules),
    )  # fmt: skip


_TEXTS = ("regraft", "torch", "device", "machine", "target", "goal", "mode")


def _pinned(path: Path, entry: object) -> Pinned:
    if not isinstance(entry, dict) or not all(isinstance(entry.get(name), str) for name in ("id", "sha256")):
        raise LockError(f"{path}: every rule needs the texts id and sha256")
    return Pinned(entry["id"], entry["sha256"], {k: v for k, v in entry.items() if k not in ("id", "sha256")})


def locked_rules(
    path: Path, lock: Lock, directories: Sequence[Path] = (BUILT_IN,)
) -> tuple[tuple[Rule, ...], tuple[RuleProblem, ...]]:
    """The rules of a lock, and what is wrong with their files; raises LockError where they are not the pinned ones."""
    if not lock.rules:
        return (), ()
    there = {f"{one.parent.name}/{one.stem}" for folder in directories for one in folder.glob("*/*.rule")}
    again = f"measure again: regraft bench {lock.target} --mode {lock.mode} --select {lock.goal}"
    for one in lock.rules:
        if one.id not in there:
            raise LockError(f"{path}: there is no rule {one.id} any more; {again}")
    rules, problems = load_rules([one.id for one in lock.rules], (), directories)
    digests = {one.id: one.sha256 for one in lock.rules}
    for rule in rules:
        if _digest(rule) != digests[rule.id]:
            raise LockError(f"{path}: the rule {rule.id} is not the one that was measured; {again}")
    return rules, problems


def notes(lock: Lock, torch: str = "", device: str = "") -> Iterator[str]:
    """What is different here from where the lock was measured; an empty text is not compared."""
    for name, there, here in (
        ("Regraft", lock.regraft, __version__), ("PyTorch", lock.torch, torch), ("device", lock.device, device),
    ):  # fmt: skip
        if here and here != there:
            yield f"measured with {name} {there}, here is {here}"


def _digest(rule: Rule) -> str:
    return hashlib.sha256(rule.path.read_bytes()).hexdigest()
