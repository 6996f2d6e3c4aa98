"""Turns the grammar's reductions into syntax, checking what a context-free grammar cannot say.

The parser calls the method of `Builder` named like the grammar's rule with what it reduced. A `Placed` carries
the position along, so that every complaint names its culprit.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from regraft.dsl import sections
from regraft.dsl.sections import Culprit, Piece, Place, Section, Side, Token
from regraft.dsl.syntax import (
    SAFETIES,
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
    Whole,
    Wildcard,
)

SLICE = Ref("slice")
ELLIPSIS = Ref("Ellipsis")
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_HEX = r"[\da-fA-F]"
_ESCAPES = re.compile(rf"""(?:[^\\]|\\(?:['"\\abfnrtv]|x{_HEX}{{2}}|u{_HEX}{{4}}|U(?:000{_HEX}|0010){_HEX}{{4}}))*""")


@dataclass(frozen=True, slots=True)
class Placed:
    """An expression, its place, and whether it is a bare `_` or `*` (`alone` is that character)."""

    value: Operand | Condition | Slice
    line: int
    column: int
    alone: str = ""


@dataclass(frozen=True, slots=True)
class Keyword:
    name: str
    value: Operand
    line: int
    column: int


Keywords: TypeAlias = "tuple[tuple[str, Operand], ...]"


def operand(placed: Placed) -> Operand:
    """The placed expression as a value; a comparison becomes the operator of the same spelling."""
    value = placed.value
    if isinstance(value, Test) and value.op in COMPARISONS and value.right is not None:
        return Apply(value.op, (value.left, value.right))
    if isinstance(value, Test | Not | And | Or):
        raise Culprit("a condition cannot stand where a value is expected", placed)
    return cast(Operand, value)


def condition(placed: Placed) -> Condition:
    value = placed.value
    return value if isinstance(value, Test | Not | And | Or) else Test(operand(placed))


class Builder:
    """One method for each rule of the grammar, called with the rule's children in the order of the text."""

    # Operands

    def var(self, children: Sequence[Token]) -> Placed:
        return _placed(Var(str(children[0])[1:]), children[0])

    def wildcard(self, children: Sequence[Token]) -> Placed:
        return Placed(Wildcard(), children[0].line, children[0].column, alone=str(children[0]))

    def ref(self, children: Sequence[Token]) -> Placed:
        return _placed(Ref(str(children[0])), children[0])

    def ellipsis(self, children: Sequence[Token]) -> Placed:
        return _placed(ELLIPSIS, children[0])

    def singleton(self, children: Sequence[Token]) -> Placed:
        return _placed(Const({"True": True, "False": False, "None": None}[str(children[0])]), children[0])

    def number(self, children: Sequence[Token]) -> Placed:
        text = str(children[0])
        try:
            value: int | float = int(text, 16) if "x" in text.lower() else int(text)
        except ValueError:
            try:
                value = float(text)
            except ValueError:
                raise Culprit(f"`{text}` is not a number", children[0]) from None
        return _placed(Const(value), children[0])

    def string(self, children: Sequence[Token]) -> Placed:
        return _placed(Const(_unquote(children[0])), children[0])

    def parentheses(self, children: Sequence[Any]) -> Placed:
        return _placed(children[1].value, children[0])

    def group(self, children: Sequence[Any]) -> Placed:
        return _placed(Group(tuple(operand(child) for child in children[1:])), children[0])

    def binary(self, children: Sequence[Any]) -> Placed:
        left, operator, right = children
        return _placed(Apply(str(operator), (operand(left), operand(right))), left)

    def unary(self, children: Sequence[Any]) -> Placed:
        sign, value = children
        return _placed(Apply("neg" if str(sign) == "-" else str(sign), (operand(value),)), sign)

    def call(self, children: Sequence[Any]) -> Placed:
        callee, *arguments = children
        return _placed(Apply(operand(callee), *_split_arguments(arguments)), callee)

    def attribute(self, children: Sequence[Any]) -> Placed:
        return _placed(Attr(operand(children[0]), str(children[1])), children[0])

    def item(self, children: Sequence[Any]) -> Placed:
        base, *rest = children
        indices = [child for child in rest if isinstance(child, Placed)]
        return _placed(Item(operand(base), _index(indices, many=len(indices) < len(rest))), base)

    def slice(self, children: Sequence[Any]) -> Placed:
        parts: list[Operand | None] = [None]
        for child in children:
            if isinstance(child, Placed):
                parts[-1] = operand(child)
            else:
                parts.append(None)
        if len(parts) > 2 and parts[2] is not None:
            return _placed(Apply(SLICE, tuple(part or Const(None) for part in parts)), children[0])
        return _placed(Slice(parts[0], parts[1]), children[0])

    def keyword(self, children: Sequence[Any]) -> Keyword:
        name, value = children
        if "." in str(name):
            raise Culprit(f"`{name}` cannot name an argument", name)
        return Keyword(str(name), operand(value), name.line, name.column)

    # Conditions

    def comparison(self, children: Sequence[Any]) -> Placed:
        left, operator, right = children
        return _placed(Test(operand(left), " ".join(str(operator).split()), operand(right)), left)

    def negation(self, children: Sequence[Any]) -> Placed:
        return _placed(Not(condition(children[1])), children[0])

    def conjunction(self, children: Sequence[Placed]) -> Placed:
        return _placed(And(tuple(condition(child) for child in children)), children[0])

    def disjunction(self, children: Sequence[Placed]) -> Placed:
        return _placed(Or(tuple(condition(child) for child in children)), children[0])

    # Nodes and bodies

    def outputs(self, children: Sequence[Placed]) -> tuple[Operand, ...]:
        return tuple(_output(child) for child in children)

    def node(self, children: Sequence[Any]) -> Piece:
        start, *rest = children
        marked = not isinstance(start, Placed)
        layer = marked and str(start) == "@"
        expression: Placed = rest.pop(0) if marked else start
        outputs: tuple[Operand, ...] = ()
        if rest and not isinstance(rest[0], Placed):
            outputs, rest = rest[1], rest[2:]
        guard = condition(rest[0]) if rest else None
        if expression.alone and not marked and not outputs and guard is None:
            return Piece(Wildcard(), start.line, start.column, underscore=expression.alone == "_")
        at = Position(start.line, start.column)
        optional = marked and not layer
        node = Node(_computation(expression, layer), outputs, layer, guard, optional, at=at)
        return Piece(node, at.line, at.column)

    def alternatives(self, children: Sequence[Any]) -> Piece:
        start, *rest = children
        first, *others = [_computation(one, False) for one in rest if isinstance(one, Placed)]
        at = Position(start.line, start.column)
        optional = start.type == "OPT"
        node = Node(first, rest[-1], optional=optional, alternatives=tuple(others), at=at)
        return Piece(node, at.line, at.column)

    def skipped(self, children: Sequence[Any]) -> Piece:
        start, *rest = children
        place = next(index for index, one in enumerate(rest) if isinstance(one, Placed))
        names = tuple(str(one) for one in rest[: place - 1 : 2])
        at = Position(start.line, start.column)
        apply = Apply(Ref(names[0]), (operand(rest[place]),))
        return Piece(Node(apply, rest[-1], skip=names, at=at), at.line, at.column)

    def keep(self, children: Sequence[Token]) -> Piece:
        return Piece(None, children[0].line, children[0].column)

    def side(self, children: Sequence[Any]) -> Side:
        return tuple(children)

    def fragment(self, children: Sequence[Side]) -> Fragment:
        return sections.fragment(children[0])

    def transformation(self, children: Sequence[Any]) -> Transformation:
        if len(children) == 1:
            raise Culprit("no `=>`: a transformation is `source => target`", sections.start(children[0]))
        return sections.transformation(children)

    # The rule file

    def head(self, children: Sequence[Token]) -> Section:
        heading, content = children[:2]
        if str(heading) == "safety" and str(content) not in SAFETIES:
            raise Culprit(f"unknown safety `{content}`; it is one of {', '.join(SAFETIES)}", content)
        if str(heading) == "default" and str(content) != "off":
            raise Culprit(f"unknown default `{content}`; a rule is on, or says `default off`", content)
        return Section(heading, _unquote(content) if str(heading) == "summary" else content)

    def need(self, children: Sequence[Token]) -> Need:
        return Need(*(str(child) for child in children))

    def needs(self, children: Sequence[Any]) -> Section:
        return Section(children[0], tuple(child for child in children if isinstance(child, Need)))

    def body(self, children: Sequence[Any]) -> Section:
        heading, first, *rest = children
        if not rest:
            raise Culprit(f"`{heading}` needs `source => target`", heading)
        return Section(heading, sections.transformations(heading, [first, *rest]))

    def whole(self, children: Sequence[Any]) -> Section:
        heading, *rest = children
        lines = [str(one)[1:].removeprefix(" ").rstrip() for one in rest if str(one).startswith("|")]
        target = sections.fragment(rest[-1])
        if len(target) != 1 or not isinstance(target[0], Node):
            raise Culprit("`body` needs one kernel call after `=>`", heading)
        return Section(heading, (Whole("\n".join(lines), target[0], Position(heading.line, heading.column)),))

    def predicate(self, children: Sequence[Any]) -> Predicate:
        name, _, *arguments = children
        values, keywords = _split_arguments(arguments)
        if keywords:
            raise Culprit(f"`{name}` takes no keyword arguments", name)
        return Predicate(str(name), values, Position(name.line, name.column))

    def where(self, children: Sequence[Any]) -> Section:
        return Section(children[0], tuple(child for child in children if isinstance(child, Predicate)))

    def rule(self, children: Sequence[Any]) -> RuleSyntax:
        return sections.rule([child for child in children if isinstance(child, Section)])


def _placed(value: Operand | Condition | Slice, at: Place) -> Placed:
    return Placed(value, at.line, at.column)


def _unquote(token: Token) -> str:
    text = str(token)
    if not _ESCAPES.fullmatch(text):
        raise Culprit("an unknown escape in this string", token)
    return cast(str, ast.literal_eval(text))


def _split_arguments(arguments: Iterable[Placed | Keyword]) -> tuple[tuple[Operand, ...], Keywords]:
    values: list[Operand] = []
    keywords: dict[str, Operand] = {}
    for argument in arguments:
        if isinstance(argument, Placed):
            if keywords:
                raise Culprit("a positional argument after a keyword argument", argument)
            values.append(operand(argument))
        elif argument.name in keywords:
            raise Culprit(f"`{argument.name}` is given twice", argument)
        else:
            keywords[argument.name] = argument.value
    return tuple(values), tuple(keywords.items())


def _index(indices: Sequence[Placed], many: bool) -> Operand | Slice:
    """One index stays itself; several become a tuple, whose slices are calls of Python's `slice`."""
    if len(indices) == 1 and not many:
        only = indices[0]
        return only.value if isinstance(only.value, Slice) else operand(only)
    return Group(tuple(_slice_call(i.value) if isinstance(i.value, Slice) else operand(i) for i in indices))


def _slice_call(value: Slice) -> Operand:
    return Apply(SLICE, (value.start or Const(None), value.stop or Const(None)))


def _output(placed: Placed) -> Operand:
    value = placed.value
    if not isinstance(value, Var | Wildcard | Ref | Attr | Item | Group):
        raise Culprit("an output is a name, not a computation", placed)
    return value


def _computation(expression: Placed, layer: bool) -> Apply:
    value = operand(expression)
    if isinstance(value, Apply):
        if layer and isinstance(value.callee, str):
            raise Culprit("`@` marks the construction of a layer, and this is an operator", expression)
        return value
    if layer and isinstance(value, Var | Wildcard | Ref | Attr | Item):
        return Apply(value)
    raise Culprit("a node is a call or an operator, like `torch.nn.ReLU($x) -> $y` or `$a + $b -> $c`", expression)
