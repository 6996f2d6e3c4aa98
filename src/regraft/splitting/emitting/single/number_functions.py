"""Functions of `math` and squares of Python's numbers, in 64 bits: where Python raises, the file
fails at run time."""

from __future__ import annotations

import math

from regraft.splitting.emitting.single import number_arithmetic
from regraft.splitting.emitting.single.graph import Graph, element_type
from regraft.splitting.emitting.single.graph_values import Const, Number, Value, number_kind
from regraft.splitting.emitting.single.path_types import Inexpressible, name_of

# ONNX's operation, and how Python's function compares what it takes with 0; None for any number
FUNCTIONS: dict[str, tuple[str, str | None]] = {
    "sqrt": ("Sqrt", ">="),
    "log": ("Log", ">"),
    "exp": ("Exp", None),
}


def call_math(graph: Graph, function_name: str, value: Value) -> Value | None:
    """Return `math.sqrt`, `math.log` or `math.exp` of a number, which fails at run time where
    Python's function raises; None for other functions and values."""
    if function_name not in FUNCTIONS or number_kind(value) is None:
        return None
    if isinstance(value, Const):
        try:
            return Const(getattr(math, function_name)(value.value))
        except (ArithmeticError, ValueError) as problem:
            raise Inexpressible(f"an operation that fails ({problem})") from problem
    operation, comparison = FUNCTIONS[function_name]
    name = number_arithmetic.as_float(graph, value)
    if comparison is not None:
        holds = number_arithmetic.compare_numbers(
            graph, comparison, Number(name, "float"), Const(0.0)
        )
        name = add_checked_copy(graph, name, name_of(graph, holds), "ValueError: math domain error")
    return require_finite(graph, graph.add(operation, name))


def power(graph: Graph, base: Value, exponent: Value) -> Value | None:
    """Return the square of a number; None for other powers."""
    if not isinstance(exponent, Const) or exponent.value != 2 or number_kind(exponent) != "int":
        return None
    squared = number_arithmetic.arithmetic(graph, "*", base, base)
    if isinstance(squared, Number) and squared.kind == "float":
        return require_finite(graph, squared.name)
    return squared


def require_finite(graph: Graph, name: str) -> Number:
    """Return a float with a check that fails at run time where it is infinite."""
    is_finite = graph.add("Not", graph.add("IsInf", name))
    message = "OverflowError: an infinite number"
    return Number(add_checked_copy(graph, name, is_finite, message), "float")


def add_checked_copy(graph: Graph, name: str, condition: str, message: str) -> str:
    """Return the name of a copy of a float that fails at run time, with the message, where the
    condition does not hold."""
    zero = graph.add("Cast", graph.add_check(condition, message), to=element_type("float64"))
    return graph.add("Add", name, zero)
