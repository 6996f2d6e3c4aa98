"""The constants that values certainly are, and their comparison with the operands of a rule."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping

from regraft.dsl.syntax import ELLIPSIS, Apply, Const, Operand, Ref
from regraft.structure.values_and_nodes import Node, Value

ONE_ROUNDING = 2.0**-23  # of float32, relative
LARGEST = 1e300  # integers beyond it have no float
ARITHMETIC_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "pow": operator.pow,
    "sqrt": math.sqrt,
    "rsqrt": lambda number: 1 / math.sqrt(number),
    "math.sqrt": math.sqrt,
    "numpy.sqrt": math.sqrt,
}
_OPERATORS: Mapping[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
}
_NAMED_NUMBERS = {"math.pi": math.pi, "numpy.pi": math.pi, "torch.pi": math.pi}


def is_certainly(operand: Operand, value: Value) -> bool:
    """Return whether a value is certainly the constant or name that the operand is.

    A number with a decimal point is any number that is equal to it in float32, however it is
    written: `1`, `1.0`, `math.sqrt(2.0)`. Other constants must have the same type: `1` is not
    `True`.
    """
    if isinstance(operand, Const) and isinstance(operand.value, float):
        number = number_of(value)
        return number is not None and math.isclose(number, operand.value, rel_tol=ONE_ROUNDING)
    if isinstance(operand, Const):
        return type(value.const) is type(operand.value) and value.const == operand.value
    if operand == ELLIPSIS:
        return value.const is ...
    if isinstance(operand, Ref):
        return value.name == operand.path and value.origin in ("path", "global")
    return False


def number_of(value: Value) -> float | None:
    """Return the number that a value certainly is, computed from constants of the source, also one
    in a tensor without dimensions; None if it is unknown."""
    if isinstance(value.const, int | float) and not isinstance(value.const, bool):
        return value.const if abs(value.const) < LARGEST else None
    if value.origin == "global" and value.name in _NAMED_NUMBERS:
        return _NAMED_NUMBERS[value.name]
    if value.node is None or value.origin == "phi":
        return None
    return _computed_number(value.node)


def _computed_number(node: Node) -> float | None:
    """Return the result of a node's arithmetic as a float; None for an operation that is no such
    arithmetic, if an operand is unknown, and if it raises."""
    if node.op == "py.call" and node.spelling == "torch.tensor":
        return _number_in_tensor(node)
    function = ARITHMETIC_FUNCTIONS.get(_operation_name(node))
    if function is None:
        return None
    operands = [argument for name, argument in node.args.items() if name not in node.defaults]
    numbers = [number_of(operand) for operand in operands]
    # powers of integers can be endless
    floats = [float(number) for number in numbers if number is not None]
    if len(floats) < len(numbers):
        return None
    try:
        result = function(*floats)
    except (ArithmeticError, ValueError, TypeError):
        return None
    return result if isinstance(result, float) else None


def _number_in_tensor(node: Node) -> float | None:
    """Return the number from which a call of `torch.tensor` makes a tensor that computes as the
    number does: a float, with no keyword but the device; None for any other call."""
    expr = node.inner or node.expr
    if not isinstance(expr, ast.Call) or len(expr.args) != 1:
        return None
    if any(keyword.arg != "device" for keyword in expr.keywords):
        return None  # a data type may round the number, or make it a whole one
    number = number_of(next(iter(node.args.values())))
    return number if isinstance(number, float) else None


def _operation_name(node: Node) -> str:
    """Return the name under which ARITHMETIC_FUNCTIONS may have a node's computation: `add` for `+`
    and the like, the spelling of a call of Python, else the canonical operation."""
    if node.op == "py.binary":
        expr = node.inner or node.expr
        return _OPERATORS.get(type(expr.op), "") if isinstance(expr, ast.BinOp) else ""
    return node.spelling if node.op == "py.call" else node.op


def operand_text(operand: Operand) -> str:
    """Return an operand in words for messages."""
    if isinstance(operand, Const):
        return repr(operand.value)
    if isinstance(operand, Ref):
        return operand.path
    return "the operand of the rule" if isinstance(operand, Apply) else str(operand)
