"""Conditions about what a value is: a constant, a tensor, a number or an attribute."""

from __future__ import annotations

from regraft.matching.conditions.values_for_conditions import Arguments, Scope, variable_text
from regraft.matching.constants import ARITHMETIC_FUNCTIONS, is_certainly, operand_text
from regraft.structure.values_and_nodes import MISSING, Value

# Operations on a parameter before it is used: casts and arithmetic.
_ELEMENTWISE_OPS = frozenset({*ARITHMETIC_FUNCTIONS, "to", "neg", "py.attr"})


def constant(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the value is a constant."""
    value = scope.value(args[0])
    return (
        ""
        if value is not None and value.const is not MISSING
        else f"{variable_text(args[0])} is not a constant"
    )


def equals(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the value is certainly the constant or the name that the second
    argument is."""
    value = scope.value(args[0])
    return (
        ""
        if value is not None and is_certainly(args[1], value)
        else f"{variable_text(args[0])} is not {operand_text(args[1])}"
    )


def tensor(args: Arguments, scope: Scope) -> str:
    """Return a reason where the value is certainly something else than a tensor, and where it is
    not bound."""
    value = scope.value(args[0])
    can_be_tensor = value is not None and value.kind in ("tensor", "unknown")
    return "" if can_be_tensor else f"{variable_text(args[0])} is not a tensor"


# Operations that give a number for numbers.
_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "pow", "sqrt", "rsqrt", "neg"})


def scalar(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the value is certainly a number.

    That is a constant, an annotated parameter, an attribute that the constructor sets from its
    arguments, or what is computed from these.
    """
    value = scope.value(args[0])
    if value is None or (value.const is not MISSING and not isinstance(value.const, int | float)):
        return f"{variable_text(args[0])} is not a number"
    if _is_number_in_forward(value, scope):
        return ""
    return f"{variable_text(args[0])} is not known to be a number"


def _is_number_in_forward(value: Value, scope: Scope) -> bool:
    """Return whether a value is a number, an attribute that holds one, or computed from such."""
    if isinstance(value.const, int | float) or value.kind in ("int", "scalar"):
        return True
    if value.node is not None and value.node.op in _ARITHMETIC:
        return all(_is_number_in_forward(operand, scope) for operand in value.node.args.values())
    stored = [layer.args.get("value") for layer in scope.structure.layers.get(value.name, ())]
    are_numbers = bool(stored) and all(_is_number_like(argument) for argument in stored)
    return value.origin == "path" and are_numbers


def _is_number_like(value: Value | None) -> bool:
    """Return whether a value that a constructor stores is a number, a parameter or an attribute, or
    computed from these."""
    if value is None:
        return False
    if value.node is not None and value.node.op in _ARITHMETIC:
        return all(_is_number_like(operand) for operand in value.node.args.values())
    return (
        isinstance(value.const, int | float)
        or value.kind in ("int", "scalar")
        or value.origin == "param"
        or value.attribute() is not None
    )


def present(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the value is bound and neither False nor None."""
    value = scope.value(args[0])
    return (
        f"{variable_text(args[0])} is None" if value is None or value.const in (None, False) else ""
    )


def stored(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the value is made of attributes of the instance and of constants
    alone."""
    value = scope.value(args[0])
    return (
        ""
        if value is not None and _is_stored(value)
        else f"{variable_text(args[0])} is not an attribute"
    )


def _is_stored(value: Value) -> bool:
    """Return whether a value is a constant, an attribute, a global, or elementwise arithmetic of
    such values."""
    if value.const is not MISSING or value.origin in ("path", "global"):
        return True
    node = value.node
    return (
        node is not None
        and node.op in _ELEMENTWISE_OPS
        and all(_is_stored(argument) for argument in node.args.values())
    )
