"""The constants that a value of the host may be, where these are few: sides that none of them takes are left out."""

from __future__ import annotations

import ast
import copy
import itertools
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from regraft.splitting.residual import reads
from regraft.splitting.values import SAME, Value, literal

Constants = tuple[Any, ...]

TRUTHS: Constants = (False, True)
MOST = 16  # constants that one value may be
TRIED = 256  # combinations of these in one expression
PLAIN = (
    ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Name, ast.Constant, ast.Tuple, ast.List, ast.expr_context,
    ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip


def possible(value: Value) -> Constants | None:
    """What a value is one of, for whatever input, at this point of the program; None where that is not known."""
    if value.kind == "static":
        return (value.example,) if literal(value.example) is not None else None
    return value.among if value.kind == "host" else None


def is_truth(value: Value) -> bool:
    """Whether it is True or False, whatever the input: that of the example says nothing."""
    return all(type(one) is bool for one in possible(value) or (None,))


def distinct(several: Iterable[Any]) -> Constants | None:
    found = {}
    for one in several:
        if not isinstance(one, (bool, int, float, str)) or math.isnan(one if isinstance(one, float) else 0):
            return None
        found[type(one), repr(one)] = one
    return tuple(found.values()) if 0 < len(found) <= MOST else None


def of_all(values: list[Value]) -> Constants | None:
    """What is one of several values."""
    each = [possible(value) for value in values]
    if any(one is None for one in each) or any(isinstance(value.example, (tuple, list)) for value in values):
        return None
    return distinct(constant for one in each for constant in one or ())


def outcomes(node: ast.expr, parts: list[ast.expr], operands: list[Value]) -> Constants | None:
    """What an operator can give, for all combinations of what its operands may be."""
    each = [possible(one) for one in operands]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and operands[0].kind == "host":
        left, right = (one.example for one in operands)
        if each[0] is None and operands[1].kind == "static" and type(left) is type(right) is int and 0 < right <= MOST:
            return tuple(range(right))
    if not isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare)) or any(one is None for one in each):
        return None
    tried = list(itertools.islice(itertools.product(*(one or () for one in each)), TRIED + 1))
    if len(tried) > TRIED or isinstance(getattr(node, "op", None), (ast.Pow, ast.LShift, ast.MatMult)):
        return None
    names = {id(part): f"v{place}" for place, part in enumerate(parts)}
    made = copy.copy(node)
    for field, part in ast.iter_fields(node):
        if isinstance(part, ast.expr):
            setattr(made, field, ast.Name(names[id(part)], ast.Load()))
        elif isinstance(part, list) and field == "comparators":
            setattr(made, field, [ast.Name(names[id(one)], ast.Load()) for one in part])
    code = compile(ast.fix_missing_locations(ast.Expression(made)), "<constants>", "eval")
    try:
        found = [eval(code, {}, dict(zip(names.values(), one, strict=True))) for one in tried]
    except Exception:  # noqa: BLE001  (an operation that raises for one of them is left to the host)
        return None
    return distinct(found) if len(str(found)) < 1000 else None


def narrowed(value: Value, key: str, test: ast.expr, holds: bool) -> Value:
    """What a name of the host holds where a test of it alone holds, or does not."""
    if value.kind != "host" or reads(test) != {key} or not all(isinstance(one, PLAIN) for one in ast.walk(test)):
        return value
    code = compile(ast.fix_missing_locations(ast.Expression(test)), "<constants>", "eval")

    def fits(one: Any) -> bool:
        try:
            return bool(eval(code, {}, {key: one})) == holds
        except Exception:  # noqa: BLE001  (the host raises there)
            return True

    among = possible(value)
    if among is None:  # followed with a number that leads here
        here = value.example
        if type(here) is not int or value.other != here or fits(here):
            return value
        return replace(value, example=next(filter(fits, (here - 1, here + 1, 0, 1)), here), twin=SAME)
    left = tuple(filter(fits, among))
    if not left:
        return value
    example = value.example if value.example in left else left[0]
    twin = value.twin if value.other in left and len(left) > 1 else SAME
    return replace(value, example=example, twin=twin, constant=len(left) == 1, among=left)
