"""Conditions of the source as guards: atoms of formulas, with their text in the source."""

from __future__ import annotations

import ast

from regraft.structure import calls, guards
from regraft.structure.guards import Atom, Guard
from regraft.structure.lowering_state import Frame
from regraft.structure.values_and_nodes import MISSING, Value

_ORDERS = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
_MIRRORED = str.maketrans("lg", "gl")
_WORDS = {ast.Is: "is", ast.IsNot: "is not", ast.Eq: "==", ast.NotEq: "!="}
_SIMPLE = (ast.Name, ast.Attribute, ast.Constant, ast.Call, ast.Subscript)


def truth_guard(frame: Frame, expr: ast.expr, value: Value) -> Guard:
    """Return the truth of a value as a guard; that of a call of a predicate of Regraft has an atom
    of its own."""
    if value.const is not MISSING:
        return guards.TRUE if value.const else guards.FALSE
    node = value.node
    predicate = calls.predicate(node.spelling) if node is not None and node.op == "call" else None
    kind, subject = "truth", value.key()
    if node is not None and predicate is not None and "0" in node.args:
        kind, subject = "call", f"{predicate}({node.args['0'].key()})"
    return Atom(kind, subject, None, _text(frame, expr), _test_time(frame))


def comparison_guard(frame: Frame, expr: ast.Compare, left: Value, right: Value) -> Guard:
    """Return a comparison of two operands as a guard; the atom is opaque unless one operand is a
    constant."""
    operator = expr.ops[0]
    order = _ORDERS.get(type(operator))
    negated = isinstance(operator, ast.IsNot | ast.NotEq)
    atom: Guard
    if left.const is not MISSING and right.const is MISSING:
        left, right = right, left
        order = order and order.translate(_MIRRORED)
    if isinstance(operator, ast.Is | ast.IsNot) and right.const is None:
        if left.const is not MISSING:
            return guards.TRUE if (left.const is None) is not negated else guards.FALSE
        text, opposite = _comparison_texts(frame, expr, ast.Is(), ast.IsNot())
        atom = Atom("none", left.key(), None, text, _test_time(frame), opposite)
    elif isinstance(operator, ast.Eq | ast.NotEq) and right.const is not MISSING:
        text, opposite = _comparison_texts(frame, expr, ast.Eq(), ast.NotEq())
        atom = Atom("eq", left.key(), right.const, text, _test_time(frame), opposite)
    elif order and type(right.const) in (int, float):
        return Atom(order, left.key(), right.const, _text(frame, expr), _test_time(frame))
    else:
        text = _text(frame, expr)
        subject = f"{left.key()} {type(operator).__name__} {right.key()}"
        return Atom("opaque", subject, None, text, _test_time(frame))
    return guards.negate(atom) if negated else atom


def _comparison_texts(
    frame: Frame, expr: ast.Compare, positive: ast.cmpop, negative: ast.cmpop
) -> tuple[str, str]:
    """Return a comparison and its opposite as the source writes them."""
    if not (isinstance(expr.left, _SIMPLE) and isinstance(expr.comparators[0], _SIMPLE)):
        texts = (
            ast.unparse(ast.Compare(expr.left, [operator], expr.comparators))
            for operator in (positive, negative)
        )
    else:
        left, right = _text(frame, expr.left), _text(frame, expr.comparators[0])
        texts = (f"{left} {_WORDS[type(operator)]} {right}" for operator in (positive, negative))
    written, opposite = texts
    return written, opposite


def _text(frame: Frame, expr: ast.expr) -> str:
    """Return the text of an expression in the source, or its normal form when the text has odd
    white space."""
    segment = frame.scope.source.segment(expr)
    plain = "\n" not in segment and "  " not in segment and "\t" not in segment
    return segment if plain else ast.unparse(expr)


def _test_time(frame: Frame) -> int:
    """Return the time of a test; negative inside an inlined function, which has names of
    its own."""
    return frame.time if frame.site is None else -frame.time
