"""Construction of syntax from the grammar's reductions, with the checks that a context-free grammar
cannot express.

For each reduction the parser calls the method of `Builder` with the name of the grammar's rule.
Expressions are passed on with their positions, so that every error message has one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from regraft.dsl import sections
from regraft.dsl.sections import NotationError, Piece, Place, Section, Side, Token
from regraft.dsl.syntax import (
    COMPARISONS,
    ELLIPSIS,
    SAFETIES,
    SLICE,
    SUBSCRIPT,
    And,
    Apply,
    Attr,
    Condition,
    Const,
    Fragment,
    Group,
    Item,
    Need,
    Node,
    Not,
    Operand,
    Or,
    Position,
    Predicate,
    Ref,
    RuleSyntax,
    Slice,
    Test,
    Transformation,
    Var,
    WholeBody,
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


class Builder:
    """One method for each rule of the grammar, which gets the rule's children in the order of the
    text."""

    # Operands

    def var(self, children: Sequence[Token]) -> PlacedExpression:
        return _place(Var(str(children[0])[1:]), children[0])

    def wildcard(self, children: Sequence[Token]) -> PlacedExpression:
        return PlacedExpression(
            Wildcard(), children[0].line, children[0].column, bare_symbol=str(children[0])
        )

    def ref(self, children: Sequence[Token]) -> PlacedExpression:
        return _place(Ref(str(children[0])), children[0])

    def ellipsis(self, children: Sequence[Token]) -> PlacedExpression:
        return _place(ELLIPSIS, children[0])

    def singleton(self, children: Sequence[Token]) -> PlacedExpression:
        return _place(
            Const({"True": True, "False": False, "None": None}[str(children[0])]), children[0]
        )

    def number(self, children: Sequence[Token]) -> PlacedExpression:
        text = str(children[0])
        try:
            value: int | float = int(text, 16) if "x" in text.lower() else int(text)
        except ValueError:
            try:
                value = float(text)
            except ValueError:
                raise NotationError(f"`{text}` is not a number", children[0]) from None
        return _place(Const(value), children[0])

    def string(self, children: Sequence[Token]) -> PlacedExpression:
        return _place(Const(_unquote(children[0])), children[0])

    def parentheses(self, children: Sequence[Any]) -> PlacedExpression:
        return _place(children[1].value, children[0])

    def group(self, children: Sequence[Any]) -> PlacedExpression:
        return _place(Group(tuple(operand(child) for child in children[1:])), children[0])

    def binary(self, children: Sequence[Any]) -> PlacedExpression:
        left, operator, right = children
        return _place(Apply(str(operator), (operand(left), operand(right))), left)

    def unary(self, children: Sequence[Any]) -> PlacedExpression:
        sign, value = children
        return _place(Apply("neg" if str(sign) == "-" else str(sign), (operand(value),)), sign)

    def call(self, children: Sequence[Any]) -> PlacedExpression:
        callee, *arguments = children
        return _place(Apply(operand(callee), *_split_arguments(arguments)), callee)

    def attribute(self, children: Sequence[Any]) -> PlacedExpression:
        return _place(Attr(operand(children[0]), str(children[1])), children[0])

    def item(self, children: Sequence[Any]) -> PlacedExpression:
        base, *subscripts = children
        indices = [child for child in subscripts if isinstance(child, PlacedExpression)]
        return _place(
            Item(operand(base), _index(indices, is_tuple=len(indices) < len(subscripts))), base
        )

    def slice(self, children: Sequence[Any]) -> PlacedExpression:
        parts: list[Operand | None] = [None]
        for child in children:
            if isinstance(child, PlacedExpression):
                parts[-1] = operand(child)
            else:
                parts.append(None)
        if len(parts) > 2 and parts[2] is not None:
            return _place(Apply(SLICE, tuple(part or Const(None) for part in parts)), children[0])
        return _place(Slice(parts[0], parts[1]), children[0])

    def keyword(self, children: Sequence[Any]) -> Keyword:
        name, value = children
        if "." in str(name):
            raise NotationError(f"`{name}` cannot name an argument", name)
        return Keyword(str(name), operand(value), name.line, name.column)

    # Conditions

    def comparison(self, children: Sequence[Any]) -> PlacedExpression:
        left, operator, right = children
        return _place(Test(operand(left), " ".join(str(operator).split()), operand(right)), left)

    def negation(self, children: Sequence[Any]) -> PlacedExpression:
        return _place(Not(condition(children[1])), children[0])

    def conjunction(self, children: Sequence[PlacedExpression]) -> PlacedExpression:
        return _place(And(tuple(condition(child) for child in children)), children[0])

    def disjunction(self, children: Sequence[PlacedExpression]) -> PlacedExpression:
        return _place(Or(tuple(condition(child) for child in children)), children[0])

    # Nodes and bodies

    def outputs(self, children: Sequence[PlacedExpression]) -> tuple[Operand, ...]:
        return tuple(_output(child) for child in children)

    def node(self, children: Sequence[Any]) -> Piece:
        start, *parts = children
        is_marked = not isinstance(start, PlacedExpression)
        layer = is_marked and str(start) == "@"
        expression: PlacedExpression = parts.pop(0) if is_marked else start
        outputs: tuple[Operand, ...] = ()
        if parts and not isinstance(parts[0], PlacedExpression):
            outputs, parts = parts[1], parts[2:]
        guard = condition(parts[0]) if parts else None
        if expression.bare_symbol and not is_marked and not outputs and guard is None:
            return Piece(
                Wildcard(), start.line, start.column, underscore=expression.bare_symbol == "_"
            )
        at = Position(start.line, start.column)
        optional = is_marked and not layer
        node = Node(_computation(expression, layer), outputs, layer, guard, optional, at=at)
        return Piece(node, at.line, at.column)

    def alternatives(self, children: Sequence[Any]) -> Piece:
        start, *parts = children
        computation, *alternatives = [
            _computation(part, False) for part in parts if isinstance(part, PlacedExpression)
        ]
        at = Position(start.line, start.column)
        optional = start.type == "OPT"
        node = Node(
            computation, parts[-1], optional=optional, alternatives=tuple(alternatives), at=at
        )
        return Piece(node, at.line, at.column)

    def skipped(self, children: Sequence[Any]) -> Piece:
        start, *parts = children
        operand_index = next(
            index for index, part in enumerate(parts) if isinstance(part, PlacedExpression)
        )
        names = tuple(str(name) for name in parts[: operand_index - 1 : 2])
        at = Position(start.line, start.column)
        apply = Apply(Ref(names[0]), (operand(parts[operand_index]),))
        return Piece(Node(apply, parts[-1], skip=names, at=at), at.line, at.column)

    def keep(self, children: Sequence[Token]) -> Piece:
        return Piece(None, children[0].line, children[0].column)

    def side(self, children: Sequence[Any]) -> Side:
        return tuple(children)

    def fragment(self, children: Sequence[Side]) -> Fragment:
        return sections.fragment(children[0])

    def transformation(self, children: Sequence[Any]) -> Transformation:
        if len(children) == 1:
            raise NotationError(
                "no `=>`: a transformation is `source => target`", sections.start(children[0])
            )
        return sections.transformation(children)

    # The rule file

    def head(self, children: Sequence[Token]) -> Section:
        heading, content = children[:2]
        if str(heading) == "safety" and str(content) not in SAFETIES:
            raise NotationError(
                f"unknown safety `{content}`; it is one of {', '.join(SAFETIES)}", content
            )
        if str(heading) == "default" and str(content) != "off":
            raise NotationError(
                f"unknown default `{content}`; a rule is on, or says `default off`", content
            )
        return Section(heading, _unquote(content) if str(heading) == "summary" else content)

    def need(self, children: Sequence[Token]) -> Need:
        return Need(*(str(child) for child in children))

    def needs(self, children: Sequence[Any]) -> Section:
        return Section(children[0], tuple(child for child in children if isinstance(child, Need)))

    def body(self, children: Sequence[Any]) -> Section:
        heading, first_side, *further_parts = children
        if not further_parts:
            raise NotationError(f"`{heading}` needs `source => target`", heading)
        return Section(heading, sections.transformations(heading, [first_side, *further_parts]))

    def whole(self, children: Sequence[Any]) -> Section:
        heading, *parts = children
        lines = [
            str(token)[1:].removeprefix(" ").rstrip()
            for token in parts
            if str(token).startswith("|")
        ]
        target = sections.fragment(parts[-1])
        at = Position(heading.line, heading.column)
        if len(target) != 1 or not isinstance(target[0], Node):
            raise NotationError(f"`{heading}` needs one kernel call after `=>`", heading)
        return Section(
            heading,
            (WholeBody("\n".join(lines), target[0], str(heading) == "block", at),),
        )

    def predicate(self, children: Sequence[Any]) -> Predicate:
        name, _, *arguments = children
        values, keywords = _split_arguments(arguments)
        if keywords:
            raise NotationError(f"`{name}` takes no keyword arguments", name)
        return Predicate(str(name), values, Position(name.line, name.column))

    def where(self, children: Sequence[Any]) -> Section:
        return Section(
            children[0], tuple(child for child in children if isinstance(child, Predicate))
        )

    def rule(self, children: Sequence[Any]) -> RuleSyntax:
        return sections.rule([child for child in children if isinstance(child, Section)])


def _place(value: Operand | Condition | Slice, at: Place) -> PlacedExpression:
    return PlacedExpression(value, at.line, at.column)


def _unquote(token: Token) -> str:
    """Return the text of a string literal; raise NotationError for an unknown escape."""
    text = str(token)
    if not _ESCAPES.fullmatch(text):
        raise NotationError("an unknown escape in this string", token)
    return cast(str, ast.literal_eval(text))


def _split_arguments(
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


def _index(indices: Sequence[PlacedExpression], is_tuple: bool) -> Operand | Slice:
    """Return the only index itself, or a tuple of several, in which slices are calls of Python's
    `slice`."""
    if len(indices) == 1 and not is_tuple:
        index = indices[0]
        return index.value if isinstance(index.value, Slice) else operand(index)
    return Group(
        tuple(
            _slice_call(index.value) if isinstance(index.value, Slice) else operand(index)
            for index in indices
        )
    )


def _slice_call(value: Slice) -> Operand:
    return Apply(SLICE, (value.start or Const(None), value.stop or Const(None)))


def _output(expression: PlacedExpression) -> Operand:
    """Return an expression as an output; raise NotationError for a computation."""
    value = expression.value
    if not isinstance(value, Var | Wildcard | Ref | Attr | Item | Group):
        raise NotationError("an output is a name, not a computation", expression)
    return value


def _computation(expression: PlacedExpression, layer: bool) -> Apply:
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
            SUBSCRIPT, (value.base, _slice_call(index) if isinstance(index, Slice) else index)
        )
    raise NotationError(
        "a node is a call, an operator or a subscript, like `torch.nn.ReLU($x) -> $y`,"
        " `$a + $b -> $c` or `$x[0] -> $y`",
        expression,
    )
