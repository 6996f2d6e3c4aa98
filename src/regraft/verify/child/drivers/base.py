"""The subject that every driver yields: a model with calls, which brings changed definitions to
life."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

from regraft.verify.child.ledger import Ledger
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


def yield_until_error(candidates: Iterator[T], ledger: Ledger, name: str) -> Iterator[T]:
    """Yield candidates until one raises; the error is recorded as a reason to skip, and the caller
    goes on."""
    while True:
        try:
            candidate = next(candidates)
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 - drivers run model code; recorded as the reason to stop
            ledger.skip(
                f"{name} stopped: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
            )
            return
        yield candidate
