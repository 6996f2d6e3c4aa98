"""Python's arithmetic on numbers of the host, in 64 bits; what does not fit fails at run time."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

import onnx

from regraft.splitting.single.graph import Graph, element_type
from regraft.splitting.single.join import Disagree, name_of
from regraft.splitting.single.values import WIDE, Const, Number, Value, bound, described, number_kind

ARITHMETIC: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("Add", operator.add), ast.Sub: ("Sub", operator.sub), ast.Mult: ("Mul", operator.mul),
    ast.Div: ("Div", operator.truediv), ast.Mod: ("Mod", operator.mod), ast.FloorDiv: ("", operator.floordiv),
}  # fmt: skip
COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Lt: ("Less", operator.lt), ast.LtE: ("LessOrEqual", operator.le), ast.Gt: ("Greater", operator.gt),
    ast.GtE: ("GreaterOrEqual", operator.ge), ast.Eq: ("Equal", operator.eq), ast.NotEq: ("", operator.ne),
}  # fmt: skip
EXACT = 2**53  # whole numbers up to it are floats, too


def arithmetic(graph: Graph, op: ast.operator, left: Value, right: Value) -> Value:
    """`left op right` as Python computes it."""
    if type(op) not in ARITHMETIC:
        raise Disagree(f"the operator {type(op).__name__} on numbers")
    known = ARITHMETIC[type(op)]
    if isinstance(left, Const) and isinstance(right, Const):
        try:
            return Const(known[1](left.value, right.value))
        except (ArithmeticError, TypeError) as problem:
            raise Disagree(f"an operation that fails ({problem})") from problem
    kinds = {number_kind(one) for one in (left, right)}
    if None in kinds:
        raise Disagree(f"the operator {type(op).__name__} on {described(left)} and {described(right)}")
    whole = "float" not in kinds
    if isinstance(op, (ast.Div, ast.Mod, ast.FloorDiv)):
        right = nonzero(graph, right)
    if not whole or isinstance(op, ast.Div):
        return floats(graph, op, known[0], as_float(graph, left, whole), as_float(graph, right, whole))
    left, right = as_int(graph, left), as_int(graph, right)
    if known[0] in ("Mod", ""):
        left, right = narrowed(graph, left, WIDE), narrowed(graph, right, WIDE)
    if isinstance(op, ast.Mod):
        return Number(graph.add("Mod", name_of(graph, left), name_of(graph, right)), "int", bound(right))
    if isinstance(op, ast.FloorDiv):
        rest = graph.add("Mod", name_of(graph, left), name_of(graph, right))
        even = graph.add("Sub", name_of(graph, left), rest)
        return Number(graph.add("Div", even, name_of(graph, right)), "int", bound(left) + 1)
    return within(graph, known[0], left, right)


def within(graph: Graph, op: str, left: Value, right: Value) -> Number:
    """A sum, difference or product that fails where it does not fit into 64 bits."""
    names = [name_of(graph, one) for one in (left, right)]
    most = bound(left) * bound(right) if op == "Mul" else bound(left) + bound(right)
    made = graph.add(op, *names)
    if most < 2**63:
        return Number(made, "int", most)
    rough = graph.add(op, *(graph.add("Cast", one, to=element_type("float64")) for one in names))
    return fits(graph, made, graph.add("Abs", rough))


def fits(graph: Graph, name: str, size: str) -> Number:
    """The whole number `name`; fails unless `size` (float64) is below the limit."""
    below = graph.add("Less", size, graph.number(float(WIDE), "float"))
    zero = graph.unless(below, "OverflowError: a whole number of Python that does not fit into 64 bits")
    return Number(graph.add("Add", name, zero), "int", WIDE)


def narrowed(graph: Graph, value: Value, most: int) -> Value:
    """A whole number that is known to be no larger than `most`, or fails unless it is smaller."""
    if number_kind(value) != "int" or bound(value) <= most:
        return value
    name = name_of(graph, value)
    size = graph.add("Abs", graph.add("Cast", name, to=element_type("float64")))
    below = graph.add("Less", size, graph.number(float(most), "float"))
    zero = graph.unless(below, "OverflowError: a whole number of Python that is too large here")
    return Number(graph.add("Add", name, zero), "int", most)


def floats(graph: Graph, op: ast.operator, known: str, left: str, right: str) -> Number:
    if isinstance(op, ast.FloorDiv):
        raise Disagree("// of floats")
    if not isinstance(op, ast.Mod):
        return Number(graph.add(known, left, right), "float")
    rest = graph.add("Mod", left, right, fmod=1)  # the sign of the dividend; Python's is that of the divisor
    zero = graph.number(0.0, "float")
    signs = graph.add("Xor", graph.add("Less", rest, zero), graph.add("Less", right, zero))
    other = graph.add("And", signs, graph.add("Not", graph.add("Equal", rest, zero)))
    return Number(graph.add("Where", other, graph.add("Add", rest, right), rest), "float")


def nonzero(graph: Graph, value: Value) -> Value:
    if isinstance(value, Const):
        if not value.value:
            raise Disagree("a division by zero")
        return value
    kind = number_kind(value)
    if kind == "bool":
        return nonzero(graph, as_int(graph, value))
    name = name_of(graph, value)
    differs = graph.add("Not", graph.add("Equal", name, graph.number(0, kind or "")))
    zero = graph.unless(differs, "ZeroDivisionError")
    if kind == "float":
        zero = graph.add("Cast", zero, to=element_type("float64"))
    return Number(graph.add("Add", name, zero), kind or "", bound(value))


def as_int(graph: Graph, value: Value) -> Value:
    """A bool as the int that it is."""
    if isinstance(value, Const):
        return Const(int(value.value)) if isinstance(value.value, bool) else value
    if number_kind(value) == "bool":
        return Number(graph.add("Cast", name_of(graph, value), to=element_type("int64")), "int", 1)
    return value


def as_float(graph: Graph, value: Value, exact: bool = False) -> str:
    """A number as float64; `exact`: fail where a whole number is not one."""
    if isinstance(value, Const):
        return graph.number(float(value.value), "float")
    if exact:
        value = narrowed(graph, value, EXACT)
    name = name_of(graph, value)
    return name if number_kind(value) == "float" else graph.add("Cast", name, to=element_type("float64"))


def converted(graph: Graph, kind: str, value: Value) -> Value:
    """`int(value)`, `float(value)` or `bool(value)`."""
    have = number_kind(value)
    if have is None:
        raise Disagree(f"{kind}() of {described(value)}")
    if isinstance(value, Const):
        return Const({"int": int, "float": float, "bool": bool}[kind](value.value))
    if have == kind:
        return value
    if kind == "float":
        return Number(as_float(graph, value), "float")
    if kind == "bool":
        return truth(graph, value)
    if have == "bool":
        return as_int(graph, value)
    return whole(graph, name_of(graph, value))


def whole(graph: Graph, name: str) -> Number:
    """A float64 cut to a whole number; fails for what Python has no int for, and beyond 64 bits."""
    return fits(graph, graph.add("Cast", name, to=onnx.TensorProto.INT64), graph.add("Abs", name))


def truth(graph: Graph, value: Value) -> Value:
    """`bool(value)` of a number."""
    kind = number_kind(value)
    if isinstance(value, Const):
        return Const(bool(value.value))
    if kind is None:
        raise Disagree(f"the truth of {described(value)}")
    if kind == "bool":
        return value
    name = name_of(graph, value)
    return Number(graph.add("Not", graph.add("Equal", name, graph.number(0, kind))), "bool")


def compared(graph: Graph, op: ast.cmpop, left: Value, right: Value) -> Value:
    """A comparison of two numbers, exact also between whole numbers and floats."""
    if type(op) not in COMPARISONS:
        raise Disagree(f"the comparison {type(op).__name__}")
    known, function = COMPARISONS[type(op)]
    if isinstance(left, Const) and isinstance(right, Const):
        return Const(function(left.value, right.value))
    if number_kind(left) is None or number_kind(right) is None:
        raise Disagree(f"the comparison of {described(left)} with {described(right)}")
    if "float" in (number_kind(left), number_kind(right)):
        names = [as_float(graph, one, exact=True) for one in (left, right)]
    else:
        names = [name_of(graph, as_int(graph, one)) for one in (left, right)]
    if known:
        return Number(graph.add(known, *names), "bool")
    return Number(graph.add("Not", graph.add("Equal", *names)), "bool")


def chosen(graph: Graph, called: str, left: Value, right: Value) -> Value:
    """`min(left, right)` or `max(left, right)`: the first one, unless the second is less or greater."""
    kind = number_kind(left)
    if isinstance(left, Const) and isinstance(right, Const):
        return Const(min(left.value, right.value) if called == "min" else max(left.value, right.value))
    if kind != number_kind(right) or kind not in ("int", "float"):
        raise Disagree(f"{called}() of {described(left)} and {described(right)}")
    names = [name_of(graph, one) for one in (left, right)]
    other = graph.add("Less" if called == "min" else "Greater", names[1], names[0])
    return Number(
        graph.add("Where", other, names[1], names[0]), kind, max(bound(left), bound(right)) if kind == "int" else 0
    )


def negative(graph: Graph, value: Value) -> Value:
    if isinstance(value, Const):
        return Const(-value.value)
    value = narrowed(graph, as_int(graph, value), WIDE)
    return Number(graph.add("Neg", name_of(graph, value)), number_kind(value) or "", bound(value))


def absolute(graph: Graph, value: Value) -> Value:
    if isinstance(value, Const):
        return Const(abs(value.value))
    value = narrowed(graph, as_int(graph, value), WIDE)
    return Number(graph.add("Abs", name_of(graph, value)), number_kind(value) or "", bound(value))


def rounded(graph: Graph, value: Value) -> Value:
    """`round(value)`: to the nearest whole number, halves to the even one."""
    if isinstance(value, Const):
        return Const(round(value.value))
    if number_kind(value) != "float":
        return as_int(graph, value)
    return whole(graph, graph.add("Round", name_of(graph, value)))
