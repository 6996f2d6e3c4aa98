"""Guards: the path conditions under which nodes run, as propositional formulas over atoms.

Guards are compared by meaning. The theory of the atoms is just large enough for Python conditions:
a value cannot be true and None, nor equal to two different constants, nor on both sides of a
number. (A NaN is on neither side.)
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

MAX_ATOMS = 20
_READ_TIME = re.compile(r"@\d+")


@dataclass(frozen=True, slots=True)
class Atom:
    """One undivided test: `kind` says how `subject` (a value's key) is tested against `argument`.

    kinds: `truth`, `none` (is None), `eq` (== constant), `lt`, `le`, `gt`, `ge` (compared with a
    constant number), `call` (a pure predicate), `opaque` (anything else). `text` is the test as the
    source writes it, `opposite` its negation where Python has an operator for that, and `time` the
    time of the test (0: no particular time, negative: in an inlined function).
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
    """Return `left and right`; `left` is shared, so a chain of conditions costs one object per
    step."""
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
    """Return the atoms of a guard, each once, in the order of the text."""
    return tuple(dict.fromkeys(_walk(guard)))


def _walk(guard: Guard) -> Iterator[Atom]:
    """Yield the atoms of a guard in the order of the text, with repetitions."""
    stack = [guard]
    while stack:
        part = stack.pop()
        if isinstance(part, Atom):
            yield part
        elif isinstance(part, Not):
            stack.append(part.operand)
        else:
            stack.extend(reversed(part.operands))


def evaluate(guard: Guard, assignment: dict[Atom, bool]) -> bool | None:
    """Return the truth of a guard when only some atoms are decided; None while it is undecided."""
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
    """Return whether the decided atoms do not contradict each other as conditions on values."""
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
    # a comparison does not decide that its value is not None: that test has to come before the
    # comparison
    if none & (true | {subject for subject, constant in chosen.items() if constant is not None}):
        return False
    return all(
        _can_hold_together(atoms, chosen.get(subject)) for subject, atoms in compared.items()
    )


ORDERS = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}


def _can_hold_together(comparisons: Sequence[Atom], chosen: object) -> bool:
    """Return whether one number can meet all comparisons, namely `chosen` if that is a number."""
    limits = [
        (comparison.argument, comparison.kind)
        for comparison in comparisons
        if isinstance(comparison.argument, int | float)
    ]
    if isinstance(chosen, int | float):
        return all(ORDERS[kind](chosen, limit) for limit, kind in limits)
    return all(
        low < high if "t" in low_kind + high_kind else low <= high
        for low, low_kind in limits
        if low_kind in ("gt", "ge")
        for high, high_kind in limits
        if high_kind in ("lt", "le")
    )


def assignments(
    guards: Iterable[Guard], limit: int = MAX_ATOMS
) -> Iterator[dict[Atom, bool]] | None:
    """Yield the consistent truth assignments to the atoms of `guards`; None when there are more
    than `limit` atoms."""
    open_atoms = tuple(dict.fromkeys(atom for guard in guards for atom in _walk(guard)))
    return None if len(open_atoms) > limit else _extend_assignment(open_atoms, {})


def _extend_assignment(
    open_atoms: tuple[Atom, ...], assignment: dict[Atom, bool]
) -> Iterator[dict[Atom, bool]]:
    """Yield the consistent extensions of an assignment to the open atoms."""
    if not open_atoms:
        yield dict(assignment)
        return
    for value in (True, False):
        assignment[open_atoms[0]] = value
        if consistent(assignment):
            yield from _extend_assignment(open_atoms[1:], assignment)
        del assignment[open_atoms[0]]


def satisfiable(guard: Guard) -> bool:
    """Return whether a guard can be true; a guard with too many undecided atoms counts as
    satisfiable.

    The atoms that a conjunction determines are decided first; only the other atoms are searched.
    """
    determined = _determined_atoms(guard)
    if determined is None or not consistent(determined[0]):
        return False
    assignment, clauses = determined
    open_atoms = tuple(
        atom for atom in dict.fromkeys(_walk(And(clauses))) if atom not in assignment
    )
    return len(open_atoms) > MAX_ATOMS or _search(And(clauses), open_atoms, assignment)


def _determined_atoms(guard: Guard) -> tuple[dict[Atom, bool], tuple[Guard, ...]] | None:
    """Return the truth of the atoms that a guard determines, and the remaining clauses; None for a
    contradiction."""
    assignment: dict[Atom, bool] = {}
    clauses: list[Guard] = []
    stack: list[tuple[Guard, bool]] = [(guard, True)]
    while stack:
        part, truth = stack.pop()
        if isinstance(part, Not):
            stack.append((part.operand, not truth))
        elif isinstance(part, Atom):
            if assignment.setdefault(part, truth) is not truth:
                return None
        elif isinstance(part, And) is truth or len(part.operands) == 1:
            stack += [(operand, truth) for operand in part.operands]
        elif not part.operands:
            return None
        else:
            clauses.append(part if truth else Not(part))
    return assignment, tuple(clauses)


def _search(guard: Guard, open_atoms: tuple[Atom, ...], assignment: dict[Atom, bool]) -> bool:
    """Return whether a consistent extension of an assignment to the open atoms makes the guard
    true."""
    truth = evaluate(guard, assignment)
    if truth is not None or not open_atoms:
        return bool(truth)
    for value in (True, False):
        assignment[open_atoms[0]] = value
        if consistent(assignment) and _search(guard, open_atoms[1:], assignment):
            del assignment[open_atoms[0]]
            return True
        del assignment[open_atoms[0]]
    return False


def implies(left: Guard, right: Guard) -> bool:
    """Return whether `right` certainly holds wherever `left` does."""
    return right is TRUE or left is right or not satisfiable(conjoin(left, negate(right)))


def merge_readings(guard: Guard) -> Guard:
    """Return the guard as if no call changed an attribute: reads of a path at different times
    (`self.x@7`) are one."""
    if isinstance(guard, Atom):
        return replace(guard, subject=_READ_TIME.sub("", guard.subject))
    if isinstance(guard, Not):
        return Not(merge_readings(guard.operand))
    return type(guard)(tuple(map(merge_readings, guard.operands)))


def conjuncts(guard: Guard) -> tuple[Guard, ...]:
    """Return the operands of a conjunction, also nested or as a negated disjunction, each once."""
    if isinstance(guard, And):
        return tuple(
            dict.fromkeys(part for operand in guard.operands for part in conjuncts(operand))
        )
    if isinstance(guard, Not) and isinstance(guard.operand, Or):
        return tuple(
            dict.fromkeys(
                part for operand in guard.operand.operands for part in conjuncts(negate(operand))
            )
        )
    return (guard,)


def text(guard: Guard) -> str:
    """Return the guard as a Python condition; "" when it always holds."""
    result = _text(guard)
    return "" if result == "True" else result


def _text(guard: Guard) -> str:
    """Return the guard as a Python condition, in which "True" stands for one that always holds."""
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
