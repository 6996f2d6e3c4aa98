"""Construction of syntax from the grammar's reductions, with the checks that a context-free grammar
cannot express.

For each reduction the parser calls the method of `Builder` with the name of the grammar's rule.
Expressions are passed on with their positions, so that every error message has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regraft.dsl import sections
from regraft.dsl.expressions import (
    Keyword,
    PlacedExpression,
    computation_of,
    condition,
    index_of,
    operand,
    output_of,
    place_expression,
    split_arguments,
    unquoted,
)
from regraft.dsl.sections import NotationError, Piece, Section, Side, Token
from regraft.dsl.syntax import (
    ELLIPSIS,
    SAFETIES,
    SLICE,
    And,
    Apply,
    Attr,
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


class Builder:
    """One method for each rule of the grammar, which gets the rule's children in the order of the
    text."""

    # Operands

    def var(self, children: Sequence[Token]) -> PlacedExpression:
        return place_expression(Var(str(children[0])[1:]), children[0])

    def wildcard(self, children: Sequence[Token]) -> PlacedExpression:
        return PlacedExpression(
            Wildcard(), children[0].line, children[0].column, bare_symbol=str(children[0])
        )

    def ref(self, children: Sequence[Token]) -> PlacedExpression:
        return place_expression(Ref(str(children[0])), children[0])

    def ellipsis(self, children: Sequence[Token]) -> PlacedExpression:
        return place_expression(ELLIPSIS, children[0])

    def singleton(self, children: Sequence[Token]) -> PlacedExpression:
        return place_expression(
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
        return place_expression(Const(value), children[0])

    def string(self, children: Sequence[Token]) -> PlacedExpression:
        return place_expression(Const(unquoted(children[0])), children[0])

    def parentheses(self, children: Sequence[Any]) -> PlacedExpression:
        return place_expression(children[1].value, children[0])

    def group(self, children: Sequence[Any]) -> PlacedExpression:
        return place_expression(Group(tuple(operand(child) for child in children[1:])), children[0])

    def binary(self, children: Sequence[Any]) -> PlacedExpression:
        left, operator, right = children
        return place_expression(Apply(str(operator), (operand(left), operand(right))), left)

    def unary(self, children: Sequence[Any]) -> PlacedExpression:
        sign, value = children
        return place_expression(
            Apply("neg" if str(sign) == "-" else str(sign), (operand(value),)), sign
        )

    def call(self, children: Sequence[Any]) -> PlacedExpression:
        callee, *arguments = children
        return place_expression(Apply(operand(callee), *split_arguments(arguments)), callee)

    def attribute(self, children: Sequence[Any]) -> PlacedExpression:
        return place_expression(Attr(operand(children[0]), str(children[1])), children[0])

    def item(self, children: Sequence[Any]) -> PlacedExpression:
        base, *subscripts = children
        indices = [child for child in subscripts if isinstance(child, PlacedExpression)]
        return place_expression(
            Item(operand(base), index_of(indices, is_tuple=len(indices) < len(subscripts))), base
        )

    def slice(self, children: Sequence[Any]) -> PlacedExpression:
        parts: list[Operand | None] = [None]
        for child in children:
            if isinstance(child, PlacedExpression):
                parts[-1] = operand(child)
            else:
                parts.append(None)
        if len(parts) > 2 and parts[2] is not None:
            return place_expression(
                Apply(SLICE, tuple(part or Const(None) for part in parts)), children[0]
            )
        return place_expression(Slice(parts[0], parts[1]), children[0])

    def keyword(self, children: Sequence[Any]) -> Keyword:
        name, value = children
        if "." in str(name):
            raise NotationError(f"`{name}` cannot name an argument", name)
        return Keyword(str(name), operand(value), name.line, name.column)

    # Conditions

    def comparison(self, children: Sequence[Any]) -> PlacedExpression:
        left, operator, right = children
        return place_expression(
            Test(operand(left), " ".join(str(operator).split()), operand(right)), left
        )

    def negation(self, children: Sequence[Any]) -> PlacedExpression:
        return place_expression(Not(condition(children[1])), children[0])

    def conjunction(self, children: Sequence[PlacedExpression]) -> PlacedExpression:
        return place_expression(And(tuple(condition(child) for child in children)), children[0])

    def disjunction(self, children: Sequence[PlacedExpression]) -> PlacedExpression:
        return place_expression(Or(tuple(condition(child) for child in children)), children[0])

    # Nodes and bodies

    def outputs(self, children: Sequence[PlacedExpression]) -> tuple[Operand, ...]:
        return tuple(output_of(child) for child in children)

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
        node = Node(computation_of(expression, layer), outputs, layer, guard, optional, at=at)
        return Piece(node, at.line, at.column)

    def alternatives(self, children: Sequence[Any]) -> Piece:
        start, *parts = children
        computation, *alternatives = [
            computation_of(part, False) for part in parts if isinstance(part, PlacedExpression)
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
        return Section(heading, unquoted(content) if str(heading) == "summary" else content)

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
        values, keywords = split_arguments(arguments)
        if keywords:
            raise NotationError(f"`{name}` takes no keyword arguments", name)
        return Predicate(str(name), values, Position(name.line, name.column))

    def where(self, children: Sequence[Any]) -> Section:
        return Section(
            children[0], tuple(child for child in children if isinstance(child, Predicate))
        )

    def rule(self, children: Sequence[Any]) -> RuleSyntax:
        return sections.rule([child for child in children if isinstance(child, Section)])
