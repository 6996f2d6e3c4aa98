"""The constants that a value of the host may hold, where they are few: sides of decisions that none
of them takes are left out."""

from __future__ import annotations

import ast
import copy
import itertools
import math
import types
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from regraft.splitting.program.literals import literal
from regraft.splitting.program.statements import read_names
from regraft.splitting.program.values import NO_TWIN, HostValue, StaticValue, Value

Constants = tuple[Any, ...]

TRUTHS: Constants = (False, True)
MAX_CONSTANTS = 16  # constants that one value may hold
MAX_COMBINATIONS = 256  # combinations of operand constants that one expression is evaluated on
# the parts of a test that can be evaluated on a constant without effects
PURE_NODES = (
    ast.Compare,
    ast.BoolOp,
    ast.BinOp,
    ast.UnaryOp,
    ast.Name,
    ast.Constant,
    ast.Tuple,
    ast.List,
    ast.expr_context,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
)


def possible_constants(value: Value) -> Constants | None:
    """Return the constants of which the value is one, whatever the input; None where they are not
    known."""
    if isinstance(value, StaticValue):
        return (value.example,) if literal(value.example) is not None else None
    return value.among if isinstance(value, HostValue) else None


def is_truth(value: Value) -> bool:
    """Return whether the value is certainly True or False: all constants that it may be are. False
    where these are not known."""
    return all(type(constant) is bool for constant in possible_constants(value) or (None,))


def distinct_constants(constants: Iterable[Any]) -> Constants | None:
    """Return the constants without repetitions; None where there are none or more than
    MAX_CONSTANTS, and where one is a NaN, or no truth value, number or string."""
    constant_by_key = {}
    for constant in constants:
        if not isinstance(constant, (bool, int, float, str)) or math.isnan(
            constant if isinstance(constant, float) else 0
        ):
            return None
        constant_by_key[type(constant), repr(constant)] = constant
    return tuple(constant_by_key.values()) if 0 < len(constant_by_key) <= MAX_CONSTANTS else None


def constants_of_all(values: list[Value]) -> Constants | None:
    """Return all constants that one of the values may be; None where those of one value are not
    known, or one is a tuple or list."""
    constants_of_each = [possible_constants(value) for value in values]
    if any(constants is None for constants in constants_of_each) or any(
        isinstance(value.example, (tuple, list)) for value in values
    ):
        return None
    return distinct_constants(
        constant for constants in constants_of_each for constant in constants or ()
    )


def operator_outcomes(
    node: ast.expr, parts: list[ast.expr], operands: list[Value]
) -> Constants | None:
    """Return the constants that an operator can give, over all combinations of the constants of its
    operands; for `int % constant` its remainders, even where the number is not known.

    node: the operator. parts: the operands' expressions in it, in the order of `operands`. The
    result is None where the operands' constants are not known, for an operator that may be slow
    (`is_quick_operator`), where one outcome raises, for more than MAX_COMBINATIONS combinations or
    MAX_CONSTANTS outcomes, and for outcomes whose text has 1000 characters or more.
    """
    remainders = remainders_of_modulo(node, operands)
    if remainders is not None:
        return remainders
    constants_of_each = [possible_constants(operand) for operand in operands]
    if not is_quick_operator(node) or any(constants is None for constants in constants_of_each):
        return None
    all_combinations = itertools.product(*(constants or () for constants in constants_of_each))
    combinations = list(itertools.islice(all_combinations, MAX_COMBINATIONS + 1))
    if len(combinations) > MAX_COMBINATIONS:
        return None
    names = {id(part): f"v{place}" for place, part in enumerate(parts)}
    code = compile_with_names(node, names)
    try:
        results = [
            eval(code, {}, dict(zip(names.values(), combination, strict=True)))
            for combination in combinations
        ]
    except Exception:  # noqa: BLE001  (an operation that raises for one of them is left to the host)
        return None
    return distinct_constants(results) if len(str(results)) < 1000 else None


def remainders_of_modulo(node: ast.expr, operands: list[Value]) -> Constants | None:
    """Return the constants that `int % constant` can give for any whole number on its left.

    Returns None for another operator, for a constant that is not from 1 to `MAX_CONSTANTS`, and
    where the number is one of a few constants.
    """
    is_modulo = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)
    if (
        not is_modulo
        or not isinstance(operands[0], HostValue)
        or not isinstance(operands[1], StaticValue)
    ):
        return None
    left, right = (operand.example for operand in operands)
    are_integers = type(left) is type(right) is int
    if possible_constants(operands[0]) is not None or not are_integers:
        return None
    return tuple(range(right)) if 0 < right <= MAX_CONSTANTS else None


def is_quick_operator(node: ast.expr) -> bool:
    """Return whether the expression is one operator or comparison that is fast for all operands: no
    power, left shift or matrix product."""
    is_slow = isinstance(getattr(node, "op", None), (ast.Pow, ast.LShift, ast.MatMult))
    return isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare)) and not is_slow


def compile_with_names(node: ast.expr, names: dict[int, str]) -> types.CodeType:
    """Return the compiled code of an operator in which each operand is a variable. names: the
    variables by the `id` of the operand's expression. `node` stays."""
    expression = copy.copy(node)
    for field, part in ast.iter_fields(node):
        if isinstance(part, ast.expr):
            setattr(expression, field, ast.Name(names[id(part)], ast.Load()))
        elif isinstance(part, list) and field == "comparators":
            operands = [ast.Name(names[id(comparator)], ast.Load()) for comparator in part]
            setattr(expression, field, operands)
    return compile(ast.fix_missing_locations(ast.Expression(expression)), "<constants>", "eval")


def narrow_value(value: Value, key: str, test: ast.expr, holds: bool) -> Value:
    """Return what the value of the name `key` becomes on the path where `test` has the outcome
    `holds`.

    Constants that do not fit are dropped; where only the example is known, a whole number that does
    not fit is replaced by one that does, if one near it or 0 or 1 does. The value stays as it is
    where the test reads other names or calls something, and where no constant fits.
    """
    if (
        not isinstance(value, HostValue)
        or read_names(test) != {key}
        or not all(isinstance(node, PURE_NODES) for node in ast.walk(test))
    ):
        return value
    code = compile(ast.fix_missing_locations(ast.Expression(test)), "<constants>", "eval")

    def fits(constant: Any) -> bool:
        """Return whether the test has the outcome `holds` for a constant; True where the test
        raises, as the host then does."""
        try:
            return bool(eval(code, {}, {key: constant})) == holds
        except Exception:  # noqa: BLE001  (the host raises there)
            return True

    among = possible_constants(value)
    if among is None:  # this side is followed with a number that leads here
        number = value.example
        if type(number) is not int or value.second_example != number or fits(number):
            return value
        return replace(
            value, example=next(filter(fits, (number - 1, number + 1, 0, 1)), number), twin=NO_TWIN
        )
    fitting = tuple(filter(fits, among))
    if not fitting:
        return value
    example = value.example if value.example in fitting else fitting[0]
    twin = value.twin if value.second_example in fitting and len(fitting) > 1 else NO_TWIN
    return replace(value, example=example, twin=twin, constant=len(fitting) == 1, among=fitting)
