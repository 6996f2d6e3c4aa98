"""Require that an expression in whose place the changed version has a fixed value once has another
value than that one.

`stride=2` for `stride=int(1 / factor)` shows only where the factor is not a half, and models that
were guessed may have no other one there.
"""

from __future__ import annotations

import ast
from typing import Any

from regraft.verification.child.checks.arguments_in_source import literal_value
from regraft.verification.child.checks.exchanged_names import (
    Place,
    bound_names,
    place_of,
    unlike_parts,
)

_FIXED = (bool, int, float, str)


def fixed_expressions(own: ast.AST, other: ast.AST) -> dict[Place, ast.expr]:
    """Return, by their places in one definition, the expressions in whose place the other version
    has a number, a truth value or a text, with that literal.

    Only expressions that read a parameter or a local variable count: a constant of the file may be
    written out.
    """
    bound = bound_names(own)
    return {
        place_of(part): literal
        for part, literal in unlike_parts(own, other)
        if isinstance(part, ast.expr) and isinstance(literal, ast.expr)
        if isinstance(literal_value(literal), _FIXED) and not isinstance(part, ast.JoinedStr)
        if any(isinstance(name, ast.Name) and name.id in bound for name in ast.walk(part))
    }


def is_unlike(value: Any, fixed: Any) -> bool:
    """Return whether a value is another one than a fixed value; all but numbers, truth values and
    texts are."""
    return not isinstance(value, _FIXED) or value != fixed
