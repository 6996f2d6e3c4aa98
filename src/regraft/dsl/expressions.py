"""Expressions of the notation with their places, as operands, conditions and computations."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from regraft.dsl.sections import NotationError, Place, Token
from regraft.dsl.syntax import (
    COMPARISONS,
    SLICE,
    SUBSCRIPT,
    And,
    Apply,
    Attr,
    Condition,
    Const,
    Group,
    Item,
    Not,
    Operand,
    Or,
    Ref,
    Slice,
    Test,
    Var,
    Wildcard,
)

_HEX = r"[\da-fA-F]"
_ESCAPES = re.compile(
    rf"""(?:[^\\]|\\(?:['"\\abfnrtv]|x{_HEX}{{2}}|u{_HEX}{{4}}|U(?:000{_HEX}|0010){_HEX}{{4}}))*"""
)


@dataclass(frozen=True, slots=True)
class PlacedExpression:
    """An expression with its position; `bare_symbol` is the character of a bare `_` or `*`, else
    ""."""

    value: Operand | Condition | Slice
    line: int
    column: int
    bare_symbol: str = ""


@dataclass(frozen=True, slots=True)
class Keyword:
    """A keyword argument with the position of its name."""

    name: str
    value: Operand
    line: int
    column: int


Keywords: TypeAlias = "tuple[tuple[str, Operand], ...]"


def operand(expression: PlacedExpression) -> Operand:
    """Return an expression as an operand; a comparison becomes the operator of the same
    spelling."""
    value = expression.value
    if isinstance(value, Test) and value.op in COMPARISONS and value.right is not None:
        return Apply(value.op, (value.left, value.right))
    if isinstance(value, Test | Not | And | Or):
        raise NotationError("a condition cannot stand where a value is expected", expression)
    return cast(Operand, value)


def condition(expression: PlacedExpression) -> Condition:
    """Return an expression as a condition; an operand becomes the test of its truth."""
    value = expression.value
    return value if isinstance(value, Test | Not | And | Or) else Test(operand(expression))


def place_expression(value: Operand | Condition | Slice, at: Place) -> PlacedExpression:
    return PlacedExpression(value, at.line, at.column)


def unquoted(token: Token) -> str:
    """Return the text of a string literal; raise NotationError for an unknown escape."""
    text = str(token)
    if not _ESCAPES.fullmatch(text):
        raise NotationError("an unknown escape in this string", token)
    return cast(str, ast.literal_eval(text))


def split_arguments(
    arguments: Iterable[PlacedExpression | Keyword],
) -> tuple[tuple[Operand, ...], Keywords]:
    """Return positional and keyword arguments; raise NotationError for a wrong order or a repeated
    name."""
    values: list[Operand] = []
    keywords: dict[str, Operand] = {}
    for argument in arguments:
        if isinstance(argument, PlacedExpression):
            if keywords:
                raise NotationError("a positional argument after a keyword argument", argument)
            values.append(operand(argument))
        elif argument.name in keywords:
            raise NotationError(f"`{argument.name}` is given twice", argument)
        else:
            keywords[argument.name] = argument.value
    return tuple(values), tuple(keywords.items())


def index_of(indices: Sequence[PlacedExpression], is_tuple: bool) -> Operand | Slice:
    """Return the only index itself, or a tuple of several, in which slices are calls of Python's
    `slice`."""
    if len(indices) == 1 and not is_tuple:
        index = indices[0]
        return index.value if isinstance(index.value, Slice) else operand(index)
    return Group(
        tuple(
            call_of_slice(index.value) if isinstance(index.value, Slice) else operand(index)
            for index in indices
        )
    )


def call_of_slice(value: Slice) -> Operand:
    return Apply(SLICE, (value.start or Const(None), value.stop or Const(None)))


def output_of(expression: PlacedExpression) -> Operand:
    """Return an expression as an output; raise NotationError for a computation."""
    value = expression.value
    if not isinstance(value, Var | Wildcard | Ref | Attr | Item | Group):
        raise NotationError("an output is a name, not a computation", expression)
    return value


def computation_of(expression: PlacedExpression, layer: bool) -> Apply:
    """Return an expression as the computation of a node; with `layer` a plain name is a call
    without arguments."""
    value = operand(expression)
    if isinstance(value, Apply):
        if layer and isinstance(value.callee, str):
            raise NotationError(
                "`@` marks the construction of a layer, and this is an operator", expression
            )
        return value
    if layer and isinstance(value, Var | Wildcard | Ref | Attr | Item):
        return Apply(value)
    if isinstance(value, Item):
        index = value.index
        return Apply(
            SUBSCRIPT, (value.base, call_of_slice(index) if isinstance(index, Slice) else index)
        )
    raise NotationError(
        "a node is a call, an operator or a subscript, like `torch.nn.ReLU($x) -> $y`,"
        " `$a + $b -> $c` or `$x[0] -> $y`",
        expression,
    )
