"""What every driver hands over: one way to bring changed definitions to life."""

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

    `recipe` says in JSON how a reproducer builds the same model. `light` subjects are compared without perturbed
    inputs: they are run for the lines that they reach. What is compared `once` takes one seed and so many number
    formats as `formats` says.
    `varied(session, words)` yields the subject built with other values, named `fields`, where `words` name them.
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


def guarded(candidates: Iterator[T], ledger: Ledger, name: str) -> Iterator[T]:
    """Pass candidates on; what raises ends these candidates, with its reason recorded, and not those after them."""
    while True:
        try:
            candidate = next(candidates)
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 - drivers run model code; recorded as the reason to stop
            ledger.skip(f"{name} stopped: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
            return
        yield candidate
