"""The protocol of drivers, the task that they get, and the subjects that they yield: models with
calls, which run changed definitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Protocol, TypeVar

from regraft.verification.child.call_arguments import Call
from regraft.verification.child.error_text import shorten_error
from regraft.verification.child.evidence_record import Ledger
from regraft.verification.child.session import Session

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Subject:
    """A model that either version of the file can build, and calls for it.

    `build(module)` returns the model with the classes of a version; `calls(seed)` returns its calls
    with the random inputs of a seed, those with the smallest inputs first. `driver` is the name of
    the driver, and `recipe` says in JSON how a reproducer builds the same model.

    `light` subjects are compared without perturbed inputs: they are run for the lines that they
    reach. A `slow` subject is run in the plain way only: neither twice nor in other modes of
    PyTorch, and without mutants. A subject that is compared `once` takes one seed and as many
    number formats as `formats` says. `varied(session, words)` yields the subject built with other
    values of the fields whose names are in `words`; the names of those fields are the `fields` of
    the yielded subject. One that `drops_values` is compared with dropout on, even if it is light.
    """

    name: str
    driver: str
    build: Callable[[ModuleType], Any]
    calls: Callable[[int], tuple[Call, ...]]
    recipe: Mapping[str, Any]
    light: bool = False
    slow: bool = False
    once: bool = False
    formats: int = 1
    varied: Callable[[Any, frozenset[str]], Iterator[Subject]] = lambda session, words: iter(())
    fields: tuple[str, ...] = ()
    drops_values: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """The input of a driver: the session with both versions of a file, and their texts.

    `text` is the source of the changed definitions, `source` that of the whole original file. A
    driver that finds configurations for models of the file appends them to `configs`, where the
    drivers after it find them.
    """

    session: Session
    text: str = ""
    source: str = ""
    configs: list[Any] = field(default_factory=list)


class Driver(Protocol):
    """A way to build and call models of an unknown file, so that its two versions can be compared.

    A driver knows no model by name. What it needs beyond the task are arguments of its constructor.
    """

    @property
    def name(self) -> str:
        """Return the driver's name: its subjects have it as `Subject.driver`, and messages name
        it."""
        ...

    def applies(self, task: Task) -> bool:
        """Return whether the driver is meant for this kind of file; `subjects` is called only
        then."""
        ...

    def subjects(self, task: Task) -> Iterator[Subject]:
        """Yield models with calls while `task.session` misses runs of changed definitions.

        The caller compares a subject before it asks for the next one, so that the session tells
        which runs are still missing. A model that does not build or run is skipped, and the reason
        is recorded in `task.session.ledger`.
        """
        ...


def yield_until_error(candidates: Iterator[T], ledger: Ledger, name: str) -> Iterator[T]:
    """Yield from `candidates` until it ends or raises an error.

    The error is not raised again: the ledger gets the reason "NAME stopped: CLASS: MESSAGE", with
    the first 300 characters of the message, and the iteration ends. An iterator cannot go on after
    its error, so a caller with several sources wraps each of them by itself. Errors of the caller
    between two candidates, KeyboardInterrupt and SystemExit are raised as usual.
    """
    while True:
        try:
            candidate = next(candidates)
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 - drivers run model code; recorded as the reason to stop
            ledger.skip(f"{name} stopped: {shorten_error(error)}")
            return
        yield candidate
