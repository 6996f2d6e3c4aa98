"""Test that guards are compared by meaning: the decision procedure agrees with a truth table."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from regraft.structure.guards import (
    FALSE,
    TRUE,
    And,
    Atom,
    Guard,
    Not,
    Or,
    assignments,
    atoms,
    conjoin,
    evaluate,
    implies,
    merge_readings,
    negate,
    satisfiable,
    text,
)

A, B, C = (Atom("truth", name, None, name) for name in "abc")
GUARDS = st.recursive(
    st.sampled_from([A, B, C, TRUE, FALSE]),
    lambda inner: st.one_of(
        inner.map(Not),
        st.tuples(inner, inner).map(And),
        st.tuples(inner, inner).map(Or),
        st.just(TRUE),
    ),
    max_leaves=8,
)


def table(guard: Guard) -> list[bool]:
    """Return the truth values of a guard for all values of its atoms."""
    rows = itertools.product([True, False], repeat=3)
    return [bool(evaluate(guard, dict(zip((A, B, C), row, strict=True)))) for row in rows]


@given(GUARDS)
def test_satisfiable_agrees_with_the_truth_table(guard: Guard) -> None:
    assert satisfiable(guard) == any(table(guard))


@given(GUARDS, GUARDS)
def test_implication_and_negation_agree_with_the_truth_table(left: Guard, right: Guard) -> None:
    assert implies(left, right) == all(
        not premise or conclusion
        for premise, conclusion in zip(table(left), table(right), strict=True)
    )
    assert table(negate(left)) == [not row for row in table(left)]
    assert table(conjoin(left, right)) == [
        a and b for a, b in zip(table(left), table(right), strict=True)
    ]


@given(GUARDS)
def test_text_is_python_with_the_same_meaning(guard: Guard) -> None:
    code = text(guard) or "True"
    rows = itertools.product([True, False], repeat=3)
    assert [bool(eval(code, dict(zip("abc", row, strict=True)))) for row in rows] == table(guard)


def test_theory_of_python_conditions() -> None:
    none = Atom("none", "x", None, "x is None")
    true = Atom("truth", "x", None, "x")
    relu, gelu = (Atom("eq", "mode", name, f"mode == {name!r}") for name in ("relu", "gelu"))
    assert not satisfiable(And((none, true)))
    assert satisfiable(And((Not(none), true)))
    assert not satisfiable(And((relu, gelu)))
    assert implies(relu, Not(gelu))
    assert not implies(Not(relu), gelu)


def test_assignments_are_the_feasible_ones() -> None:
    relu, gelu = (Atom("eq", "mode", name, name) for name in ("relu", "gelu"))
    feasible = assignments([relu, gelu])
    assert feasible is not None
    assert len(list(feasible)) == 3
    assert assignments([And(tuple(Atom("truth", str(i)) for i in range(5)))], limit=4) is None
    assert atoms(And((A, Or((B, A))))) == (A, B)


NUMBERS = (-1, 0, 0.5, 1, 2, 3, float("nan"))
COMPARISONS = [
    (Atom(kind, "n", end, f"n {sign} {end}"), sign)
    for end in (0, 1, 2)
    for kind, sign in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="), ("eq", "=="))
]


@given(st.lists(st.tuples(st.sampled_from(COMPARISONS), st.booleans()), max_size=4))
def test_comparisons_with_numbers_agree_with_python(
    chosen: list[tuple[tuple[Atom, str], bool]],
) -> None:
    guard: Guard = TRUE
    for (atom, _), wanted in chosen:
        guard = conjoin(guard, atom if wanted else Not(atom))
    fits = [
        n
        for n in (*NUMBERS, 1.5)
        if all(eval(atom.text, {"n": n}) is wanted for (atom, _), wanted in chosen)
    ]
    assert satisfiable(guard) or not fits  # never calls a possible path impossible
    if all(wanted for _, wanted in chosen):
        assert satisfiable(guard) == bool(fits)


def test_merge_readings_takes_readings_of_one_attribute_for_one_test() -> None:
    first, later = Atom("eq", "self.kind", "a", "1"), Atom("eq", "self.kind@7", "a", "2")
    guard = conjoin(first, negate(later))
    assert satisfiable(guard)
    assert not satisfiable(merge_readings(guard))
