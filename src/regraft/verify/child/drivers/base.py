"""The protocol of drivers, and the subjects that they yield: models with calls, which bring changed
definitions to life."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Protocol, TypeVar

from regraft.verify.child.error_text import shorten_error
from regraft.verify.child.ledger import Ledger
from regraft.verify.child.session import Session
from regraft.verify.child.tree import Call

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Subject:
    """A model that either version of the file can build, and calls for it, smallest first.

    `recipe` says in JSON how a reproducer builds the same model. `light` subjects are compared
    without perturbed inputs: they are run for the lines that they reach. A subject that is compared
    `once` takes one seed and as many number formats as `formats` says. `varied(session, words)`
    yields the subject built with other values of the fields whose names are in `words`; the names
    of those fields are the `fields` of the yielded subject.
    """

    name: str
    driver: str
    build: Callable[[ModuleType], Any]
    calls: Callable[[int], tuple[Call, ...]]
    recipe: Mapping[str, Any]
    light: bool = False
    once: bool = False
    formats: int = 1
    varied: Callable[[Any, frozenset[str]], Iterator[Subject]] = lambda session, words: iter(())
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """What a driver gets: both versions of a file, which are in the session, and their texts.

    `text` is the source of the changed definitions, `source` that of the original file. A driver
    that finds configurations for models of the file appends them to `configs`, for the drivers
    after it.
    """

    session: Session
    text: str = ""
    source: str = ""
    configs: list[Any] = field(default_factory=list)


class Driver(Protocol):
    """A way to bring models of an unknown file to life, so that two versions can be compared.

    A driver knows no model by name. It takes what it needs beyond the task in its constructor.
    """

    @property
    def name(self) -> str:
        """Return the driver's name: its subjects have it as `Subject.driver`, and messages name
        it."""
        ...

    def applies(self, task: Task) -> bool:
        """Return whether the file is of the kind that the driver is for."""
        ...

    def subjects(self, task: Task) -> Iterator[Subject]:
        """Yield models with calls while `task.session` misses runs of changed definitions.

        A subject is compared before the next one is asked for. What does not build or run is
        skipped, with the reason in `task.session.ledger`.
        """
        ...


def yield_until_error(candidates: Iterator[T], ledger: Ledger, name: str) -> Iterator[T]:
    """Yield candidates until one raises; the error is recorded as a reason to skip, and the caller
    goes on."""
    while True:
        try:
            candidate = next(candidates)
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 - drivers run model code; recorded as the reason to stop
            ledger.skip(f"{name} stopped: {shorten_error(error)}")
            return
        yield candidate
