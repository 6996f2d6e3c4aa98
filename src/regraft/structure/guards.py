"""Guards: the path conditions under which nodes run, as propositional formulas over atoms.

Two guards are compared by meaning. The atoms know just enough theory for Python conditions: a value cannot be
true and None, nor equal to two different constants, nor on both sides of a number. (It may be on neither: a NaN is.)
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

MAX_ATOMS = 20
_LATER = re.compile(r"@\d+")


@dataclass(frozen=True, slots=True)
class Atom:
    """One undivided test: `kind` says how `subject` (a value's key) is tested against `argument`.

    kinds: `truth`, `none` (is None), `eq` (== constant), `lt`, `le`, `gt`, `ge` (compared with a constant number),
    `call` (a pure predicate), `opaque` (anything else).
    `text` is how the source writes it, `opposite` the negation where Python has a word for it, `time` when it is
    tested (0: nowhere in particular, negative: in an inlined function).
    """

    kind: str
    subject: str
    argument: object = None
    text: str = ""
    time: int = 0
    opposite: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and (self.kind, self.subject, repr(self.argument)) == (
            other.kind,
            other.subject,
            repr(other.argument),
        )

    def __hash__(self) -> int:
        return hash((self.kind, self.subject, repr(self.argument)))


@dataclass(frozen=True, slots=True)
class Not:
    operand: Guard


@dataclass(frozen=True, slots=True)
class And:
    operands: tuple[Guard, ...]


@dataclass(frozen=True, slots=True)
class Or:
    operands: tuple[Guard, ...]


Guard: TypeAlias = Atom | Not | And | Or
TRUE = And(())
FALSE = Or(())


def negate(guard: Guard) -> Guard:
    if isinstance(guard, Not):
        return guard.operand
    if guard == TRUE:
        return FALSE
    return TRUE if guard == FALSE else Not(guard)


def conjoin(left: Guard, right: Guard) -> Guard:
    """`left and right`; shares `left`, so a chain of conditions costs one object a step."""
    if left is TRUE or right is FALSE:
        return right
    if right is TRUE or left is FALSE:
        return left
    return And((left, right))


def disjoin(left: Guard, right: Guard) -> Guard:
    if left is FALSE or right is TRUE:
        return right
    if right is FALSE or left is TRUE:
        return left
    return Or((left, right))


def atoms(guard: Guard) -> tuple[Atom, ...]:
    """The atoms of a guard, each once, in the order of the text."""
    return tuple(dict.fromkeys(_walk(guard)))


def _walk(guard: Guard) -> Iterator[Atom]:
    stack = [guard]
    while stack:
        one = stack.pop()
        if isinstance(one, Atom):
            yield one
        elif isinstance(one, Not):
            stack.append(one.operand)
        else:
            stack.extend(reversed(one.operands))


def evaluate(guard: Guard, assignment: dict[Atom, bool]) -> bool | None:
    """Truth of the guard when only some atoms are decided; None while it is open."""
    if isinstance(guard, Atom):
        return assignment.get(guard)
    if isinstance(guard, Not):
        inner = evaluate(guard.operand, assignment)
        return None if inner is None else not inner
    stop = isinstance(guard, Or)
    result: bool | None = not stop
    for operand in guard.operands:
        value = evaluate(operand, assignment)
        if value is stop:
            return stop
        if value is None:
            result = None
    return result


def consistent(assignment: dict[Atom, bool]) -> bool:
    """False when the decided atoms contradict each other as conditions on values."""
    chosen: dict[str, object] = {}
    none: set[str] = set()
    true: set[str] = set()
    compared: dict[str, list[Atom]] = {}
    for atom, value in assignment.items():
        if not value:
            continue
        if atom.kind == "none":
            none.add(atom.subject)
        elif atom.kind == "truth":
            true.add(atom.subject)
        elif atom.kind in ORDERS:
            compared.setdefault(atom.subject, []).append(atom)
        elif atom.kind == "eq":
            if chosen.setdefault(atom.subject, atom.argument) != atom.argument:
                return False
            if atom.argument is None:
                none.add(atom.subject)
    # that a compared value is not None is left open: the comparison must not be tested before it is
    if none & (true | {subject for subject, constant in chosen.items() if constant is not None}):
        return False
    return all(_fits(atoms, chosen.get(subject)) for subject, atoms in compared.items())


ORDERS = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}


def _fits(comparisons: Sequence[Atom], chosen: object) -> bool:
    """Whether one number meets all comparisons, the `chosen` one where it is known."""
    ends = [(one.argument, one.kind) for one in comparisons if isinstance(one.argument, int | float)]
    if isinstance(chosen, int | float):
        return all(ORDERS[kind](chosen, end) for end, kind in ends)
    return all(
        low < high if "t" in low_kind + high_kind else low <= high
        for low, low_kind in ends if low_kind in ("gt", "ge")
        for high, high_kind in ends if high_kind in ("lt", "le")
    )  # fmt: skip


def assignments(guards: Iterable[Guard], limit: int = MAX_ATOMS) -> Iterator[dict[Atom, bool]] | None:
    """Consistent truth assignments to the atoms of `guards`; None when there are more than `limit` atoms."""
    found = tuple(dict.fromkeys(atom for guard in guards for atom in _walk(guard)))
    return None if len(found) > limit else _assign(found, {})


def _assign(left: tuple[Atom, ...], assignment: dict[Atom, bool]) -> Iterator[dict[Atom, bool]]:
    if not left:
        yield dict(assignment)
        return
    for value in (True, False):
        assignment[left[0]] = value
        if consistent(assignment):
            yield from _assign(left[1:], assignment)
        del assignment[left[0]]


def satisfiable(guard: Guard) -> bool:
    """True unless the guard is contradictory; a guard with too many open atoms to decide counts as satisfiable.

    What a conjunction demands of single atoms is decided first; only what is left open is searched.
    """
    found = _demands(guard)
    if found is None or not consistent(found[0]):
        return False
    assignment, clauses = found
    left = tuple(atom for atom in dict.fromkeys(_walk(And(clauses))) if atom not in assignment)
    return len(left) > MAX_ATOMS or _search(And(clauses), left, assignment)


def _demands(guard: Guard) -> tuple[dict[Atom, bool], tuple[Guard, ...]] | None:
    """What single atoms must be where the guard holds, and the clauses that remain; None for a contradiction."""
    assignment: dict[Atom, bool] = {}
    clauses: list[Guard] = []
    stack: list[tuple[Guard, bool]] = [(guard, True)]
    while stack:
        one, wanted = stack.pop()
        if isinstance(one, Not):
            stack.append((one.operand, not wanted))
        elif isinstance(one, Atom):
            if assignment.setdefault(one, wanted) is not wanted:
                return None
        elif isinstance(one, And) is wanted or len(one.operands) == 1:
            stack += [(operand, wanted) for operand in one.operands]
        elif not one.operands:
            return None
        else:
            clauses.append(one if wanted else Not(one))
    return assignment, tuple(clauses)


def _search(guard: Guard, left: tuple[Atom, ...], assignment: dict[Atom, bool]) -> bool:
    decided = evaluate(guard, assignment)
    if decided is not None or not left:
        return bool(decided)
    for value in (True, False):
        assignment[left[0]] = value
        if consistent(assignment) and _search(guard, left[1:], assignment):
            del assignment[left[0]]
            return True
        del assignment[left[0]]
    return False


def implies(left: Guard, right: Guard) -> bool:
    """True when `right` certainly holds wherever `left` does."""
    return right is TRUE or left is right or not satisfiable(conjoin(left, negate(right)))


def settled(guard: Guard) -> Guard:
    """The guard if no call changed an attribute: readings of one path at different times (`self.x@7`) are one test."""
    if isinstance(guard, Atom):
        return replace(guard, subject=_LATER.sub("", guard.subject))
    if isinstance(guard, Not):
        return Not(settled(guard.operand))
    return type(guard)(tuple(map(settled, guard.operands)))


def conjuncts(guard: Guard) -> tuple[Guard, ...]:
    """The parts of a conjunction, each once; negated disjunctions are taken apart."""
    if isinstance(guard, And):
        return tuple(dict.fromkeys(part for operand in guard.operands for part in conjuncts(operand)))
    if isinstance(guard, Not) and isinstance(guard.operand, Or):
        return tuple(dict.fromkeys(part for operand in guard.operand.operands for part in conjuncts(negate(operand))))
    return (guard,)


def text(guard: Guard) -> str:
    """The guard as a Python condition; "" when it always holds."""
    result = _text(guard)
    return "" if result == "True" else result


def _text(guard: Guard) -> str:
    if isinstance(guard, Atom):
        return guard.text
    if isinstance(guard, Not):
        if isinstance(guard.operand, Atom) and guard.operand.opposite:
            return guard.operand.opposite
        inner = _text(guard.operand)
        return f"not {inner}" if " " not in inner else f"not ({inner})"
    conjunction = isinstance(guard, And)
    neutral, word = ("True", " and ") if conjunction else ("False", " or ")
    parts = []
    for operand in guard.operands:
        part = _text(operand)
        if part != neutral:
            parts.append(f"({part})" if conjunction and isinstance(operand, Or) else part)
    return word.join(parts) or neutral
