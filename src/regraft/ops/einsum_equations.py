"""The terms of einsum equations that compute scores of attention, sum a value by its weights, or
multiply columns by a matrix."""

from __future__ import annotations

import functools
from typing import Any


def parse_weighted_sum(
    equation: Any, position: int, transposed: bool = False
) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
    """Parse an einsum equation that sums rows of a value with weights, the term at `position` of
    two; else None.

    The weights are `(..., L, S)`, or `(..., S, L)` if they are `transposed`.

    The result holds the number of the weights' dimensions, the permutation of the value to `(...,
    S, V)` for a matrix product, and the permutation of the product `(..., L, V)` to the equation's
    result.
    """
    terms = _parse_terms(equation)
    if terms is None:
        return None
    weights, value, result = terms[position], terms[1 - position], terms[2]
    batch, row, column = weights[:-2], weights[-2:-1], weights[-1:]
    if transposed:
        row, column = column, row
    features = [letter for letter in value if letter not in weights]
    if (
        len(weights) < 2
        or len(features) != 1
        or set(value) != {*batch, column, *features}
        or set(result) != {*batch, row, *features}
    ):
        return None
    value_order = tuple(value.index(letter) for letter in (*batch, column, *features))
    product_letters = (*batch, row, *features)
    return len(weights), value_order, tuple(product_letters.index(letter) for letter in result)


@functools.lru_cache(maxsize=256)
def parse_scores(equation: Any) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
    """Parse an einsum equation that makes scores of a query and a key; None for any other equation.

    The result holds the position of the query among the two terms, the permutation of the query to
    `(..., L, E)`, and the permutation of the key to `(..., S, E)`.
    """
    terms = _parse_terms(equation)
    if terms is None or len(terms[2]) < 2:
        return None
    *operands, result = terms
    batch, row, column = result[:-2], result[-2], result[-1]
    query_position = 0 if row in operands[0] else 1
    query, key = operands[query_position], operands[1 - query_position]
    features = [letter for letter in query if letter not in result]
    if (
        len(features) != 1
        or set(query) != {*batch, row, *features}
        or set(key) != {*batch, column, *features}
    ):
        return None
    return (
        query_position,
        tuple(query.index(letter) for letter in (*batch, row, *features)),
        tuple(key.index(letter) for letter in (*batch, column, *features)),
    )


def parse_column_product(equation: Any, position: int) -> tuple[bool, bool] | None:
    """Parse an einsum equation that multiplies columns, the term at `position` of two, by a matrix;
    None for any other equation, also for that of a matrix for each batch or position.

    The columns are `(N, rows, positions)`. The result says whether the matrix is transposed,
    `(rows, out)`, and whether the product is, `(N, positions, out)`.
    """
    terms = _parse_terms(equation)
    if terms is None or len(terms[position]) != 3:
        return None
    batch, row, place = tuple(terms[position])
    matrix, result = terms[1 - position], terms[2]
    out = matrix.replace(row, "")
    if len(matrix) != 2 or len(out) != 1 or out in (batch, place):
        return None
    if result not in (batch + out + place, batch + place + out):
        return None
    return matrix.startswith(row), result.endswith(out)


def _parse_terms(equation: Any) -> tuple[str, str, str] | None:
    """Split an einsum equation into its two terms and its result, each of different letters; None
    if it has others."""
    if not isinstance(equation, str):
        return None
    operands, arrow, result = equation.replace(" ", "").partition("->")
    first, comma, second = operands.partition(",")
    terms = (first, second, result)
    are_simple = all(term.isalpha() and len(set(term)) == len(term) for term in terms)
    return terms if arrow and comma and are_simple else None
