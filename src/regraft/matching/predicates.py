"""Conditions of a rule's `where`: each gives a reason why it does not hold, or nothing."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from regraft.dsl.build import ELLIPSIS
from regraft.dsl.syntax import Apply, Const, Operand, Predicate, Ref, Var
from regraft.matching.uses import METADATA
from regraft.structure import guards
from regraft.structure.calls import own_op
from regraft.structure.model import MISSING, Node, Structure, Value
from regraft.structure.module import Module
from regraft.structure.norms import is_rms_norm
from regraft.structure.rank import rank

Arguments = tuple[Operand, ...]

_VOCABULARY = re.compile("vocab|classes|labels|num_tokens|n_token")  # what the width of a model's head is named after
_COMPARABLE = 16  # times as wide: the query of 16 heads beside a key of one

ONE_ROUNDING = 2.0**-23  # of float32, relative
LARGEST = 1e300  # integers beyond it have no float
_ARITHMETIC: Mapping[str, Callable[..., float]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "pow": operator.pow,
    "math.sqrt": math.sqrt,
}  # fmt: skip
# Operations on a parameter before it is used: casts and arithmetic.
_ELEMENTWISE = frozenset({*_ARITHMETIC, "to", "neg", "py.attr"})
_OPERATORS: Mapping[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow",
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """What conditions are asked of: the values of a match's variables, and the structure and file they are in."""

    bindings: Mapping[str, Value]
    structure: Structure
    module: Module

    def value(self, operand: Operand) -> Value | None:
        return self.bindings.get(operand.name) if isinstance(operand, Var) else None


def unmet(predicate: Predicate, bindings: Mapping[str, Value], structure: Structure, module: Module) -> str:
    """Why the condition does not hold; "" when it does."""
    return PREDICATES[predicate.name][2](predicate.args, Scope(bindings, structure, module))


def fixed(operand: Operand, value: Value) -> bool:
    """True when a value is certainly the constant or name that the operand is.

    A number with a decimal point is any number that is equal to it in float32, however it is written: `1`, `1.0`,
    `math.sqrt(2.0)`. Other constants must have the same type: `1` is not `True`.
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
    """The number that a value certainly is, computed from constants of the source; None where it is not known."""
    if isinstance(value.const, int | float) and not isinstance(value.const, bool):
        return value.const if abs(value.const) < LARGEST else None
    if value.origin == "global" and value.name == "math.pi":
        return math.pi
    node = value.node
    if node is None or value.origin == "phi":
        return None
    computed = _ARITHMETIC.get(_operation(node))
    if computed is None:
        return None
    numbers = [number_of(one) for name, one in node.args.items() if name not in node.defaults]
    known = [float(one) for one in numbers if one is not None]  # powers of integers can be endless
    if len(known) < len(numbers):
        return None
    try:
        made = computed(*known)
    except (ArithmeticError, ValueError, TypeError):
        return None
    return made if isinstance(made, float) else None


def _operation(node: Node) -> str:
    """What a node computes: an operator of two numbers by its name, a function by its spelling."""
    if node.op == "py.binary":
        expr = node.inner or node.expr
        return _OPERATORS.get(type(expr.op), "") if isinstance(expr, ast.BinOp) else ""
    return node.spelling if node.op == "py.call" else node.op


def show(operand: Operand) -> str:
    """An operand in words for messages."""
    if isinstance(operand, Const):
        return repr(operand.value)
    if isinstance(operand, Ref):
        return operand.path
    return "the operand of the rule" if isinstance(operand, Apply) else str(operand)


def _used_once(args: Arguments, scope: Scope) -> str:
    for operand in args:
        value = scope.value(operand)
        if value is not None and len(value.uses) != 1:
            return f"{_show_var(operand)} is used {len(value.uses)} times"
    return ""


def _called_once(args: Arguments, scope: Scope) -> str:
    """A layer that the function calls at one place; variables of other alternatives are not bound."""
    for operand in args:
        value = scope.value(operand)
        calls = [use for use in value.uses if use.layer is value] if value is not None else []
        if len(calls) > 1:
            return f"{_show_var(operand)} is called {len(calls)} times"
    return ""


def _distinct(args: Arguments, scope: Scope) -> str:
    """The variables stand for different values."""
    for number, operand in enumerate(args):
        for other in args[:number]:
            left, right = scope.value(operand), scope.value(other)
            if left is not None and right is not None and (left is right or left.key() == right.key()):
                return f"{_show_var(operand)} is {_show_var(other)}"
    return ""


def _comparable_widths(args: Arguments, scope: Scope) -> str:
    """No layer's output is much wider than another's, as far as numbers and names say.

    One product of layers that differ so is as wide as the widest: it saves nothing.
    """
    widths = {}
    for operand in args:
        value = scope.value(operand)
        for layer in value.layers if value is not None else ():
            if "out_features" in layer.args:
                widths[_show_var(operand)] = layer.args["out_features"]
    words = [name for name, width in widths.items() if _VOCABULARY.search(_spelled(width))]
    if words and len(words) < len(widths):
        return f"{words[0]} is as wide as a vocabulary or a list of classes, and others are not"
    numbers = {name: width.const for name, width in widths.items() if isinstance(width.const, int)}
    widest, least = max(numbers, key=numbers.__getitem__, default=""), min(numbers.values(), default=0)
    if widest and numbers[widest] > _COMPARABLE * least:
        return f"{widest} is {numbers[widest]} wide, another layer {least}"
    return ""


def _spelled(value: Value) -> str:
    """The names that a value is computed from, and what it is called."""
    parts = [value.name, *value.names]
    if value.node is not None:
        parts += [value.node.spelling, *map(_spelled, value.node.args.values())]
    return " ".join(parts)


def _constant(args: Arguments, scope: Scope) -> str:
    value = scope.value(args[0])
    return "" if value is not None and value.const is not MISSING else f"{_show_var(args[0])} is not a constant"


def _equals(args: Arguments, scope: Scope) -> str:
    value = scope.value(args[0])
    return "" if value is not None and fixed(args[1], value) else f"{_show_var(args[0])} is not {show(args[1])}"


def _tensor(args: Arguments, scope: Scope) -> str:
    value = scope.value(args[0])
    known = value is not None and value.kind in ("tensor", "unknown")
    return "" if known else f"{_show_var(args[0])} is not a tensor"


def _scalar(args: Arguments, scope: Scope) -> str:
    """A number: a constant, an annotated parameter, or an attribute that the constructor sets from its arguments."""
    value = scope.value(args[0])
    if value is None or (value.const is not MISSING and not isinstance(value.const, int | float)):
        return f"{_show_var(args[0])} is not a number"
    if value.const is not MISSING or value.kind in ("int", "scalar"):
        return ""
    stored = [layer.args.get("value") for layer in scope.structure.layers.get(value.name, ())]
    if value.origin == "path" and stored and all(_number_like(one) for one in stored):
        return ""
    return f"{_show_var(args[0])} is not known to be a number"


def _number_like(value: Value | None) -> bool:
    if value is None:
        return False
    return isinstance(value.const, int | float) or value.origin == "param" or value.attribute() is not None


def _present(args: Arguments, scope: Scope) -> str:
    value = scope.value(args[0])
    return f"{_show_var(args[0])} is None" if value is None or value.const in (None, False) else ""


def _stored(args: Arguments, scope: Scope) -> str:
    """Made of attributes of the instance and of constants alone."""
    value = scope.value(args[0])
    return "" if value is not None and _is_stored(value) else f"{_show_var(args[0])} is not an attribute"


def _is_stored(value: Value) -> bool:
    if value.const is not MISSING or value.origin in ("path", "global"):
        return True
    node = value.node
    return node is not None and node.op in _ELEMENTWISE and all(_is_stored(one) for one in node.args.values())


def _feeds(args: Arguments, scope: Scope) -> str:
    """The value, or what operations on tensors make of it, is an argument of a call of the named function."""
    value = scope.value(args[0])
    seen, pending = {value}, [value] if value is not None else []
    while pending:
        one = pending.pop()
        for use in one.every_use():
            # arguments of a call with a star are gathered by a node of their own
            nodes = (use, *(more for more in use.output.uses if more.expr is use.expr))
            if use.op == "call" and any(each.op == "call" and each.spelling == show(args[1]) for each in nodes):
                return ""
            if use.op != "call" and not use.op.startswith("py.") and use.output not in seen:
                seen.add(use.output)
                pending.append(use.output)
    return f"{_show_var(args[0])} is not given to {show(args[1])}"


def _rms_norm(args: Arguments, scope: Scope) -> str:
    """A layer of the model's own class that is an RMSNorm by its `forward`, however it is called."""
    value = scope.value(args[0])
    layers = value.layers if value is not None else ()
    norms = bool(layers) and all(is_rms_norm(scope.module, one.type) for one in layers)
    return "" if norms else f"{_show_var(args[0])} is no RMSNorm"


# Steps from scores to weights that a postponed tensor follows without its elements, in place or not.
_POSTPONED = frozenset({
    "add", "sub", "mul", "div", "masked_fill", "where", "to", "type", "view", "reshape", "flatten", "unflatten",
    "squeeze", "unsqueeze", "contiguous", "dropout", "identity", "softmax",
})  # fmt: skip


def _attends(args: Arguments, scope: Scope) -> str:
    """Scores become weights by softmax over the last dimension, and these are multiplied by a value.

    What else uses them on the way, and needs their elements, must be in branches.
    """
    value = scope.value(args[0])
    pending = [(value, False)] if value is not None else []
    seen: set[tuple[Value, bool]] = set(pending)
    attended, reason = False, f"{_show_var(args[0])} does not become the weights of attention"
    while pending:
        one, soft = pending.pop()
        for use in one.every_use():
            op = "softmax" if own_op(use.spelling) == "regraft.ops.softmax" else use.op.removesuffix("_")
            if soft and (op == "einsum" or (op == "matmul" and use.args["input"] is one)):
                attended = True
            elif op in _POSTPONED and not (op == "softmax" and (soft or not _is_last(use))):
                after = (use.output, soft or op == "softmax")
                pending += [after] if after not in seen else []
                seen.add(after)
            elif _needs_elements(use) and guards.implies(_guard(value), use.guard):
                line = getattr(use.expr, "lineno", use.statement.node.lineno)
                return f"{use.spelling or use.op} at line {line} needs the elements of {_show_var(args[0])}"
    return "" if attended else reason


def _guard(value: Value | None) -> guards.Guard:
    return guards.TRUE if value is None or value.node is None else value.node.guard


def _is_last(softmax: Node) -> bool:
    """Whether a softmax may be over the last dimension."""
    if softmax.op == "call":
        return True  # an op of Regraft, which is over the last one
    dim = softmax.args["dim"].const
    found = rank(softmax.args["input"])
    if not isinstance(dim, int):
        return dim is MISSING
    return dim == -1 or (dim == found.number - 1 if found is not None else dim > 1)


def _needs_elements(use: Node) -> bool:
    """Whether a node looks at a tensor, and does not only pass it on."""
    if use.op == "py.attr":
        return use.spelling not in METADATA
    return use.op == "py.item" or not (use.op.startswith("py.") or use.spelling.rpartition(".")[2] in METADATA)


def _show_var(operand: Operand) -> str:
    return f"${operand.name}" if isinstance(operand, Var) else show(operand)


# Every condition with the least and the greatest number of its arguments.
PREDICATES: Mapping[str, tuple[int, int, Callable[[Arguments, Scope], str]]] = {
    "used_once": (1, 9, _used_once),
    "called_once": (1, 9, _called_once),
    "distinct": (2, 9, _distinct),
    "comparable_widths": (2, 9, _comparable_widths),
    "constant": (1, 1, _constant),
    "equals": (2, 2, _equals),
    "tensor": (1, 1, _tensor),
    "scalar": (1, 1, _scalar),
    "present": (1, 1, _present),
    "stored": (1, 1, _stored),
    "feeds": (2, 2, _feeds),
    "attends": (1, 1, _attends),
    "rms_norm": (1, 1, _rms_norm),
}
