"""Make wrong versions (mutants) of the changed lines, and count which ones the comparisons tell
from the original.

Each mutant is the changed version with one small edit in its changed lines. Comparisons that find
both versions equal are made once more with a mutant in place of the changed version; a difference
kills it. A proof by inputs that kill few mutants is no proof, and neither is one by inputs that do
not tell a number which only one version has from another number.
"""

from __future__ import annotations

import ast
import copy
import itertools
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType
from typing import Any

from torch import nn

from regraft.verification.child.checks.code_replacement import (
    compile_definition,
    definition_node,
    edited_codes,
    replace_code,
)
from regraft.verification.child.checks.mutant_edits import Edit, edits_in_changed_lines
from regraft.verification.child.time_limit import limit_time
from regraft.verification.definition_changes import Change
from regraft.verification.top_level_definitions import Definition

MOST = 10  # the most mutants of a definition
_RAN = "__regraft_ran__"
_TRIES = 40  # the most comparisons that one mutant may survive, for calls with the same arguments
_MOST_TRIES = 400  # the same for a mutant of a new number
_SHARE, _FREE = 0.15, 1.0  # the share of this process's processor time, and seconds in addition
_NEW_SHARE = 0.4  # the share while mutants of new numbers are tried
_LONGEST = 3.0  # the most seconds of processor time of one run of a mutant


class _TookTooLong(BaseException):
    """Raised where a mutant runs for longer than it may."""


@dataclass(slots=True)
class Mutant:
    """One edit of a changed definition, its functions' code, and the outcome of its comparisons.

    `constructs` tells that the edit is in a constructor, which only building a model runs,
    `is_of_plain_class` that its class is none of modules, so that a call may run it, too, and
    `is_of_new_number` that it changes a number that the other version does not have. `tries` counts
    the comparisons by the arguments of the call; `ran` tells that the edited expression was
    evaluated in one of them, `killed` that one found a difference.
    """

    definition: str
    text: str
    codes: dict[FunctionType, CodeType]
    constructs: bool
    is_of_new_number: bool = False
    is_of_plain_class: bool = False
    tries: Counter[str] = field(default_factory=Counter)
    ran: bool = False
    killed: bool = False

    @property
    def name(self) -> str:
        """Return the name of the mutant in steps of the ledger, by which a later process avoids
        it."""
        return f"mutant of {self.definition}, {self.text}"


class Mutants:
    """The mutants of all changed definitions of one version, at most MOST of each (three times as
    many if thorough), those of new numbers first, and the processor time that they have used."""

    def __init__(
        self,
        module: ModuleType,
        counterpart: ModuleType,
        changes: tuple[Change, ...],
        avoided: frozenset[str],
        *,
        thorough: bool = False,
        only_new_numbers: bool = False,
    ) -> None:
        """Make the mutants, and add the function by which they report to the variables of `module`.

        `counterpart` is the other version, `avoided` are the names of mutants that ended an earlier
        process, which are left out; `thorough` makes more, without a limit of time.
        """
        self._limit = math.inf if thorough else _SHARE
        self._mutants: dict[str, list[Mutant]] = {}
        self._current: Mutant | None = None
        self._spent = 0.0
        for change in changes:
            mutants = [
                mutant
                for mutant in mutants_of(change, module, counterpart)
                if mutant.name not in avoided and (mutant.is_of_new_number or not only_new_numbers)
            ]
            mutants.sort(key=lambda mutant: not mutant.is_of_new_number)
            self._mutants[change.definition] = mutants[: MOST * (3 if thorough else 1)]
        vars(module)[_RAN] = self._note_run

    def score(self, definition: str) -> dict[str, Any]:
        """Return under `killed` how many mutants of a definition were killed, under `of` how many
        ran, and under `survived` the texts of those that ran and were not killed. Mutants whose
        edited expression never ran do not count."""
        run_mutants = [mutant for mutant in self._mutants.get(definition, []) if mutant.ran]
        survivors = [mutant.text for mutant in run_mutants if not mutant.killed]
        return {
            "killed": len(run_mutants) - len(survivors),
            "of": len(run_mutants),
            "survived": survivors,
        }

    def undecided_numbers(self, definition: str) -> list[str]:
        """Return the texts of the mutants of new numbers that ran and were not killed: no input
        tells these numbers from others."""
        return [
            mutant.text
            for mutant in self._mutants.get(definition, [])
            if mutant.is_of_new_number and mutant.ran and not mutant.killed
        ]

    def _note_run(self, value: Any) -> Any:
        """Note that the edited expression of the current mutant was evaluated, and return its
        value."""
        if self._current is not None:
            self._current.ran = True
        return value

    def pending(
        self, definition: str, structure: str, *, constructing: bool = False
    ) -> Iterator[Mutant]:
        """Yield the mutants that are to be tried while there is time, those killed or tried
        `_TRIES` times aside: of one definition, or of all for "". The caller runs each before it
        asks for the next; its try and time are counted. Mutants of new numbers are tried
        `_MOST_TRIES` times, and have more time.

        `structure` is that of the call on which they run: a mutant that survives many calls without
        labels is still tried on those with labels. `constructing` selects the mutants of
        constructors instead of the others.
        """
        for name, mutants in self._mutants.items():
            for mutant in mutants if definition in ("", name) else ():
                started = time.process_time()
                share = max(self._limit, _NEW_SHARE * mutant.is_of_new_number)
                if self._spent > _FREE + share * started:
                    return
                most_tries = _MOST_TRIES if mutant.is_of_new_number else _TRIES
                may_be_tried = not mutant.killed and mutant.tries[structure] < most_tries
                is_run = mutant.constructs == constructing or mutant.is_of_plain_class
                if may_be_tried and is_run:
                    mutant.tries[structure] += 1
                    self._current = mutant
                    yield mutant
                    self._current = None
                    self._spent += time.process_time() - started


@contextmanager
def mutant_in_place(mutant: Mutant) -> Iterator[None]:
    """Replace the code of the functions of the changed version by that of a mutant in the body;
    after `_LONGEST` seconds of processor time the body ends without an error, and the mutant is
    marked as killed."""
    try:
        with replace_code(mutant.codes), limit_time(_LONGEST, _TookTooLong(), processor=True):
            yield
    except _TookTooLong:
        mutant.killed = True


def mutants_of(change: Change, module: ModuleType, counterpart: ModuleType) -> Iterator[Mutant]:
    """Yield mutants of a change in an order that brings different lines and kinds of edits first;
    edits that do not compile, or that no function of the definition runs, are skipped. Yield
    nothing for a definition that the module lacks. `counterpart` is the other version."""
    node = definition_node(module, change.definition)
    value = vars(module).get(change.definition.partition("#")[0])
    if node is None or value is None:
        return
    expressions = list(ast.walk(node))
    old_node = definition_node(counterpart, change.definition)
    old_numbers = _numbers_of(ast.walk(old_node) if old_node is not None else ())
    new_numbers = _numbers_of(expressions) - old_numbers
    for number, edit in _order_edits(edits_in_changed_lines(node, change)):
        text, edited_node = _edit_definition(node, number, edit)
        try:
            code = compile_definition(edited_node, module)
            codes = edited_codes(value, code, str(module.__file__))
        except (SyntaxError, ValueError):
            continue  # the edit does not compile where it stands
        if codes:
            constructs = all(function.__name__ == "__init__" for function in codes)
            is_of_new_number = bool(_numbers_of(expressions[number : number + 1]) & new_numbers)
            yield Mutant(
                change.definition,
                text,
                codes,
                constructs,
                is_of_new_number,
                constructs and not issubclass(value, nn.Module),
            )


def _numbers_of(nodes: Iterable[ast.AST]) -> Counter[float]:
    """Return how often each number is among nodes that are constants; booleans are no numbers."""
    return Counter(
        node.value
        for node in nodes
        if isinstance(node, ast.Constant)
        and isinstance(node.value, int | float)
        and not isinstance(node.value, bool)
    )


def _order_edits(sites: list[tuple[int, int, Edit]]) -> Iterator[tuple[int, Edit]]:
    """Return pairs of a node's position and an edit, ordered so that every line and every kind of
    edit comes early; `sites` are as `edits_in_changed_lines` returns them, sorted by line."""
    by_line = [list(group) for _, group in itertools.groupby(sites, key=lambda site: site[0])]
    count_by_kind: dict[str, int] = {}
    ranked = []
    for group in by_line:
        for index, (line, number, edit) in enumerate(group):
            count_by_kind[edit[0]] = count_by_kind.get(edit[0], 0) + 1
            ranked.append((index + count_by_kind[edit[0]], line, number, edit))
    return (
        (number, edit)
        for _, _, number, edit in sorted(ranked, key=lambda ranked_edit: ranked_edit[:3])
    )


def _edit_definition(root: Definition, number: int, edit: Edit) -> tuple[str, Definition]:
    """Return the description of an edit, "line N, `TEXT`: KIND", and a copy of a definition with
    the edit at the node of number `number` in the walk, which reports that the edit ran."""
    copied = copy.deepcopy(root)
    target = next(itertools.islice(ast.walk(copied), number, None))
    assert isinstance(target, ast.expr)
    old_text = ast.unparse(target)
    edited = _wrap_in_report(edit[1](target), target)
    for parent in ast.walk(copied):
        for name, value in ast.iter_fields(parent):
            if value is target:
                setattr(parent, name, edited)
            elif isinstance(value, list) and any(element is target for element in value):
                value[:] = [edited if element is target else element for element in value]
            else:
                continue
            description = f"line {target.lineno}, `{old_text[:60]}`: {edit[0]}"
            return description, ast.fix_missing_locations(copied)
    raise AssertionError("an expression has a parent")


def _wrap_in_report(node: ast.expr, place: ast.expr) -> ast.expr:
    """Return a call that notes that an expression ran and returns its value, at the place of
    `place`."""
    return ast.copy_location(ast.Call(ast.Name(_RAN, ast.Load()), [node], []), place)
