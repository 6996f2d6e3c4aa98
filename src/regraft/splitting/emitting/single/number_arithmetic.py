"""Python's arithmetic on numbers of the host, in 64 bits; an int that does not fit fails at run
time."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import onnx

from regraft.splitting.emitting.single.graph import Graph, element_type
from regraft.splitting.emitting.single.graph_values import (
    SAFE_BOUND,
    Const,
    Number,
    Value,
    bound,
    describe_value,
    number_kind,
)
from regraft.splitting.emitting.single.path_types import Inexpressible, name_of

# ONNX's operators, and Python's functions for constants
ARITHMETIC: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "+": ("Add", operator.add),
    "-": ("Sub", operator.sub),
    "*": ("Mul", operator.mul),
    "/": ("Div", operator.truediv),
    "%": ("Mod", operator.mod),
    "//": ("", operator.floordiv),
}
COMPARISONS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "<": ("Less", operator.lt),
    "<=": ("LessOrEqual", operator.le),
    ">": ("Greater", operator.gt),
    ">=": ("GreaterOrEqual", operator.ge),
    "==": ("Equal", operator.eq),
    "!=": ("", operator.ne),
}
EXACT_FLOAT_BOUND = 2**53  # whole numbers up to it are exact as floats, too


def arithmetic(graph: Graph, op: str, left: Value, right: Value) -> Value:
    """Return `left op right` as Python computes it; the model fails at run time where Python
    divides by zero, and where an int may be too large for ONNX to compute it exactly.

    Raises Inexpressible for operators that ONNX cannot compute so, and for operations on constants
    that fail.
    """
    if op not in ARITHMETIC:
        raise Inexpressible(f"the operator {op} on numbers")
    onnx_op, function = ARITHMETIC[op]
    if isinstance(left, Const) and isinstance(right, Const):
        try:
            return Const(function(left.value, right.value))
        except (ArithmeticError, TypeError) as problem:
            raise Inexpressible(f"an operation that fails ({problem})") from problem
    kinds = {number_kind(operand) for operand in (left, right)}
    if None in kinds:
        raise Inexpressible(
            f"the operator {op} on {describe_value(left)} and {describe_value(right)}"
        )
    is_integral = "float" not in kinds
    if op in ("/", "%", "//"):
        right = require_nonzero(graph, right)
    if not is_integral or op == "/":
        return float_arithmetic(
            graph, op, as_float(graph, left, is_integral), as_float(graph, right, is_integral)
        )
    left, right = as_int(graph, left), as_int(graph, right)
    if op in ("%", "//"):
        return integer_division(graph, op, left, right)
    return checked_arithmetic(graph, onnx_op, left, right)


def integer_division(graph: Graph, op: str, left: Value, right: Value) -> Value:
    """Return `left % right` or `left // right` of ints; the model fails at run time where one is
    too large for ONNX to compute it exactly."""
    left = limit_magnitude(graph, left, SAFE_BOUND)
    right = limit_magnitude(graph, right, SAFE_BOUND)
    remainder = graph.add("Mod", name_of(graph, left), name_of(graph, right))
    if op == "%":
        return Number(remainder, "int", bound(right))
    multiple = graph.add("Sub", name_of(graph, left), remainder)
    return Number(graph.add("Div", multiple, name_of(graph, right)), "int", bound(left) + 1)


def checked_arithmetic(graph: Graph, op: str, left: Value, right: Value) -> Number:
    """Add nodes for a sum, difference or product of ints and return it; `op` is ONNX's operator
    ("Add", "Sub", "Mul"). Where the bounds allow a result that does not fit into 64 bits, it fails
    at run time unless it is below SAFE_BOUND."""
    names = [name_of(graph, operand) for operand in (left, right)]
    result_bound = bound(left) * bound(right) if op == "Mul" else bound(left) + bound(right)
    result = graph.add(op, *names)
    if result_bound < 2**63:
        return Number(result, "int", result_bound)
    approximation = graph.add(
        op, *(graph.add("Cast", name, to=element_type("float64")) for name in names)
    )
    return require_fit(graph, result, graph.add("Abs", approximation))


def require_fit(graph: Graph, name: str, size: str) -> Number:
    """Return the int named `name` with a check that fails at run time unless `size`, the name of
    its absolute value as float64, is below SAFE_BOUND."""
    is_below = graph.add("Less", size, graph.number(float(SAFE_BOUND), "float"))
    zero = graph.add_check(
        is_below, "OverflowError: a whole number of Python that does not fit into 64 bits"
    )
    return Number(graph.add("Add", name, zero), "int", SAFE_BOUND)


def limit_magnitude(graph: Graph, value: Value, limit: int) -> Value:
    """Return an int whose bound is above `limit` with a check that fails at run time unless it is
    below `limit`. Other numbers are returned as they are."""
    if number_kind(value) != "int" or bound(value) <= limit:
        return value
    name = name_of(graph, value)
    size = graph.add("Abs", graph.add("Cast", name, to=element_type("float64")))
    is_below = graph.add("Less", size, graph.number(float(limit), "float"))
    zero = graph.add_check(
        is_below, "OverflowError: a whole number of Python that is too large here"
    )
    return Number(graph.add("Add", name, zero), "int", limit)


def float_arithmetic(graph: Graph, op: str, left: str, right: str) -> Number:
    """Return `left op right` of two floats, which are named; `%` has the sign of the divisor as in
    Python. Raises Inexpressible for `//`."""
    if op == "//":
        raise Inexpressible("// of floats")
    if op != "%":
        return Number(graph.add(ARITHMETIC[op][0], left, right), "float")
    # it has the sign of the dividend, Python's that of the divisor
    remainder = graph.add("Mod", left, right, fmod=1)
    zero = graph.number(0.0, "float")
    signs_differ = graph.add(
        "Xor", graph.add("Less", remainder, zero), graph.add("Less", right, zero)
    )
    needs_shift = graph.add(
        "And", signs_differ, graph.add("Not", graph.add("Equal", remainder, zero))
    )
    return Number(
        graph.add("Where", needs_shift, graph.add("Add", remainder, right), remainder), "float"
    )


def require_nonzero(graph: Graph, value: Value) -> Value:
    """Return a divisor with a check that fails at run time with ZeroDivisionError where it is zero;
    a bool becomes an int. Raises Inexpressible for the constant zero."""
    if isinstance(value, Const):
        if not value.value:
            raise Inexpressible("a division by zero")
        return value
    kind = number_kind(value)
    if kind == "bool":
        return require_nonzero(graph, as_int(graph, value))
    name = name_of(graph, value)
    is_nonzero = graph.add("Not", graph.add("Equal", name, graph.number(0, kind or "")))
    zero = graph.add_check(is_nonzero, "ZeroDivisionError")
    if kind == "float":
        zero = graph.add("Cast", zero, to=element_type("float64"))
    return Number(graph.add("Add", name, zero), kind or "", bound(value))


def as_int(graph: Graph, value: Value) -> Value:
    """Return a bool as an int, 0 or 1; any other number as it is."""
    if isinstance(value, Const):
        return Const(int(value.value)) if isinstance(value.value, bool) else value
    if number_kind(value) == "bool":
        return Number(graph.add("Cast", name_of(graph, value), to=element_type("int64")), "int", 1)
    return value


def as_float(graph: Graph, value: Value, exact: bool = False) -> str:
    """Return the name of a number as float64, which a node converts if needed; with `exact` an int
    above 2**53, which may be no float64, fails at run time.

    Raises Inexpressible for a constant that is too large, or with `exact` no float64.
    """
    if isinstance(value, Const):
        constant = _convert_constant(float, value.value)
        if exact and isinstance(value.value, int) and constant != value.value:
            raise Inexpressible(f"{value.value}, which no float64 equals,")
        return graph.number(constant, "float")
    if exact:
        value = limit_magnitude(graph, value, EXACT_FLOAT_BOUND)
    name = name_of(graph, value)
    return (
        name
        if number_kind(value) == "float"
        else graph.add("Cast", name, to=element_type("float64"))
    )


def _convert_constant(convert: Callable[[Any], Any], constant: Any) -> Any:
    """Return `convert(constant)`, where `convert` is a builtin such as `int` or `round`; raise
    Inexpressible where it fails, as for infinity."""
    try:
        return convert(constant)
    except (OverflowError, ValueError) as problem:
        raise Inexpressible(
            f"{convert.__name__}({constant}), which fails ({problem}),"
        ) from problem


def convert_number(graph: Graph, kind: str, value: Value) -> Value:
    """Return `int(value)`, `float(value)` or `bool(value)` of a number, as `kind` says; raise
    Inexpressible for other values."""
    value_kind = number_kind(value)
    if value_kind is None:
        raise Inexpressible(f"{kind}() of {describe_value(value)}")
    if isinstance(value, Const):
        return Const(
            _convert_constant({"int": int, "float": float, "bool": bool}[kind], value.value)
        )
    if value_kind == kind:
        return value
    if kind == "float":
        return Number(as_float(graph, value), "float")
    if kind == "bool":
        return truth(graph, value)
    if value_kind == "bool":
        return as_int(graph, value)
    return truncate_to_int(graph, name_of(graph, value))


def truncate_to_int(graph: Graph, name: str) -> Number:
    """Return the float64 named `name` cut to an int; it fails at run time for NaN, infinities and
    numbers of SAFE_BOUND or more."""
    return require_fit(
        graph, graph.add("Cast", name, to=onnx.TensorProto.INT64), graph.add("Abs", name)
    )


def truth(graph: Graph, value: Value) -> Value:
    """Return `bool(value)` of a number or constant; raise Inexpressible for other values."""
    kind = number_kind(value)
    if isinstance(value, Const):
        return Const(bool(value.value))
    if kind is None:
        raise Inexpressible(f"the truth of {describe_value(value)}")
    if kind == "bool":
        return value
    name = name_of(graph, value)
    return Number(graph.add("Not", graph.add("Equal", name, graph.number(0, kind))), "bool")


def compare_numbers(graph: Graph, op: str, left: Value, right: Value) -> Value:
    """Return the truth of `left op right`: for two constants of any type a Const, as Python
    compares them; else, for two numbers, a Number of the kind bool.

    An int is compared exactly with a float; the model fails at run time where that is impossible.
    Raises Inexpressible for other values and operators, and for constants that Python cannot
    compare.
    """
    if op not in COMPARISONS:
        raise Inexpressible(f"the comparison {op}")
    onnx_op, function = COMPARISONS[op]
    operands = f"{describe_value(left)} with {describe_value(right)}"
    if isinstance(left, Const) and isinstance(right, Const):
        try:
            return Const(function(left.value, right.value))
        except TypeError as problem:
            raise Inexpressible(f"the comparison of {operands}") from problem
    if number_kind(left) is None or number_kind(right) is None:
        raise Inexpressible(f"the comparison of {operands}")
    if "float" in (number_kind(left), number_kind(right)):
        names = [as_float(graph, operand, exact=True) for operand in (left, right)]
    else:
        names = [name_of(graph, as_int(graph, operand)) for operand in (left, right)]
    if onnx_op:
        return Number(graph.add(onnx_op, *names), "bool")
    return Number(graph.add("Not", graph.add("Equal", *names)), "bool")


def min_or_max(graph: Graph, function_name: str, left: Value, right: Value) -> Value:
    """Return `min(left, right)` or `max(left, right)`, as `function_name` says; of equal numbers
    the left one. Raises Inexpressible for numbers of two kinds and for bools."""
    kind = number_kind(left)
    if isinstance(left, Const) and isinstance(right, Const):
        return Const(
            min(left.value, right.value) if function_name == "min" else max(left.value, right.value)
        )
    if kind != number_kind(right) or kind not in ("int", "float"):
        raise Inexpressible(
            f"{function_name}() of {describe_value(left)} and {describe_value(right)}"
        )
    names = [name_of(graph, operand) for operand in (left, right)]
    takes_right = graph.add("Less" if function_name == "min" else "Greater", names[1], names[0])
    return Number(
        graph.add("Where", takes_right, names[1], names[0]),
        kind,
        max(bound(left), bound(right)) if kind == "int" else 0,
    )


def negate_number(graph: Graph, value: Value) -> Value:
    """Return `-value` of a number, of which bools become ints; raise Inexpressible for other
    values."""
    if number_kind(value) is None:
        raise Inexpressible(f"the negative of {describe_value(value)}")
    if isinstance(value, Const):
        return Const(-value.value)
    value = limit_magnitude(graph, as_int(graph, value), SAFE_BOUND)
    return Number(graph.add("Neg", name_of(graph, value)), number_kind(value) or "", bound(value))


def add_length_if_negative(graph: Graph, index: Value, length: Value) -> Value:
    """Return an index of a list that counts from its start, for one that may count from its end;
    one beyond the start stays negative."""
    if isinstance(index, Const) and index.value >= 0:
        return index
    is_negative = name_of(graph, compare_numbers(graph, "<", index, Const(0)))
    from_end = arithmetic(graph, "+", index, length)
    names = name_of(graph, from_end), name_of(graph, index)
    return Number(graph.add("Where", is_negative, *names), "int")


def absolute_value(graph: Graph, value: Value) -> Value:
    """Return `abs(value)` of a number, of which bools become ints."""
    if isinstance(value, Const):
        return Const(abs(value.value))
    value = limit_magnitude(graph, as_int(graph, value), SAFE_BOUND)
    return Number(graph.add("Abs", name_of(graph, value)), number_kind(value) or "", bound(value))


def round_number(graph: Graph, value: Value) -> Value:
    """Return `round(value)` of a number as an int: the nearest one, with halves rounded to the even
    one."""
    if isinstance(value, Const):
        return Const(_convert_constant(round, value.value))
    if number_kind(value) != "float":
        return as_int(graph, value)
    return truncate_to_int(graph, graph.add("Round", name_of(graph, value)))


def round_towards(graph: Graph, function_name: str, value: Value) -> Value | None:
    """Return `math.ceil(value)` or `math.floor(value)` of a number as an int; None for other
    values."""
    kind = number_kind(value)
    if kind is None:
        return None
    if isinstance(value, Const):
        return Const(_convert_constant(getattr(math, function_name), value.value))
    if kind != "float":
        return as_int(graph, value)
    operation = "Ceil" if function_name == "ceil" else "Floor"
    return truncate_to_int(graph, graph.add(operation, name_of(graph, value)))
