"""Tables of repairs: rows with the errors that a repair answers, its function, and an example."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

P = TypeVar("P")  # the problem: what failed, and how
C = TypeVar("C")  # a change that may solve it
Fixer = Callable[[P, "re.Match[str]"], Iterator[C]]

ANY_ERROR = r""


@dataclass(frozen=True, slots=True)
class Repair(Generic[P, C]):
    """A row of a table of repairs.

    `fixer(problem, match)` yields changes for an error in whose text, its class and message on a
    line, `pattern` is found. `example` is such a text as PyTorch, Python or a library prints it.
    """

    pattern: str
    fixer: Fixer[P, C]
    example: str

    @property
    def name(self) -> str:
        """Return the name of the fixer."""
        return getattr(self.fixer, "__name__", repr(self.fixer))


def call_fixer(fixer: Fixer[P, C], problem: P, match: re.Match[str]) -> Iterator[C]:
    """Return the changes that a fixer yields for a problem."""
    return fixer(problem, match)


def changes(
    table: Iterable[Repair[P, C]],
    problem: P,
    text: str,
    apply: Callable[[Fixer[P, C], P, re.Match[str]], Iterator[C]] = call_fixer,
) -> Iterator[C]:
    """Yield the changes of all rows that answer an error with a text, in the order of the table.

    A fixer that raises an error is left with a warning, and the rows after it are tried.
    """
    for repair in table:
        match = re.search(repair.pattern, text)
        if match is None:
            continue
        try:
            yield from apply(repair.fixer, problem, match)
        except Exception as error:  # noqa: BLE001 - messages have many forms; the next repair may help
            reason = f"{type(error).__name__}: {error}"
            warnings.warn(f"{repair.name} failed: {reason}", RuntimeWarning, stacklevel=2)
