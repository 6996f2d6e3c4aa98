"""Tables of repairs: each row has a pattern for errors, a function that yields changes which may
solve the problem, and an example of such an error."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

P = TypeVar("P")  # the problem: what failed, and how
C = TypeVar("C")  # a change that may solve it
Fixer = Callable[[P, "re.Match[str]"], Iterator[C]]

ANY_ERROR = r""  # the pattern of a repair that is tried for every error


@dataclass(frozen=True, slots=True)
class Repair(Generic[P, C]):
    """A row of a table of repairs.

    `pattern` is a regular expression that is searched for in the text of an error, its class and
    message on one line. `fixer(problem, match)` yields changes for such an error; it leaves the
    problem as it is, and yields nothing where it knows no change. `example` is the text of an error
    that the row answers, as PyTorch, Python or a library prints it; a test applies the row to it.
    """

    pattern: str
    fixer: Fixer[P, C]
    example: str

    @property
    def name(self) -> str:
        """Return the name of the fixer function; its repr where it has none."""
        return getattr(self.fixer, "__name__", repr(self.fixer))


def call_fixer(fixer: Fixer[P, C], problem: P, match: re.Match[str]) -> Iterator[C]:
    """Return the changes that a fixer yields for a problem; the default for `apply` in
    `changes`."""
    return fixer(problem, match)


def changes(
    table: Iterable[Repair[P, C]],
    problem: P,
    text: str,
    apply: Callable[[Fixer[P, C], P, re.Match[str]], Iterator[C]] = call_fixer,
) -> Iterator[C]:
    """Yield the changes for a problem by all rows whose pattern is in `text`, the text of its
    error, in the order of the table.

    Nothing is yielded where no row answers the error. A change may be equal to an earlier one, and
    may solve nothing: the caller tries it. `apply(fixer, problem, match)` calls a fixer; another
    function than `call_fixer` may apply it to further parts of the problem. A fixer that raises an
    error is left with a RuntimeWarning, its changes so far stay, and the rows after it are tried.
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
