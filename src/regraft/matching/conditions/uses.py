"""Conditions about the uses of values: how many there are, and which operations they feed."""

from __future__ import annotations

from regraft.matching.conditions.values_for_conditions import Arguments, Scope, variable_text
from regraft.matching.constants import operand_text
from regraft.structure.optable import table
from regraft.structure.values_and_nodes import Node


def used_once(args: Arguments, scope: Scope) -> str:
    """Return a reason unless each value has exactly one use."""
    for operand in args:
        value = scope.value(operand)
        if value is not None and len(value.uses) != 1:
            return f"{variable_text(operand)} is used {len(value.uses)} times"
    return ""


def called_once(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the function calls each layer at one place; variables that are not
    bound, as in another alternative, are passed over."""
    for operand in args:
        value = scope.value(operand)
        calls = [use for use in value.uses if use.layer is value] if value is not None else []
        if len(calls) > 1:
            return f"{variable_text(operand)} is called {len(calls)} times"
    return ""


def distinct(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the variables stand for different values."""
    for number, operand in enumerate(args):
        for earlier in args[:number]:
            left, right = scope.value(operand), scope.value(earlier)
            if (
                left is not None
                and right is not None
                and (left is right or left.key() == right.key())
            ):
                return f"{variable_text(operand)} is {variable_text(earlier)}"
    return ""


def feeds(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the value, or what tensor operations make of it, is an argument of a
    call of the named function."""
    value, name = scope.value(args[0]), operand_text(args[1])
    op = table().canonical_op(name)
    visited, pending = {value}, [value] if value is not None else []
    while pending:
        current = pending.pop()
        for use in current.every_use():
            if use.op == op:
                return ""
            # arguments of a call with a star are gathered by a node of their own
            nodes = (use, *(node for node in use.output.uses if node.expr is use.expr))
            is_call = any(node.op == "call" and node.spelling == name for node in nodes)
            if use.op == "call" and is_call:
                return ""
            if use.op != "call" and not use.op.startswith("py.") and use.output not in visited:
                visited.add(use.output)
                pending.append(use.output)
    return f"{variable_text(args[0])} is not given to {name}"


def first_only(args: Arguments, scope: Scope) -> str:
    """Return a reason where another element than the first of a tuple is used."""
    value = scope.value(args[0])
    for use in value.every_use() if value is not None else ():
        if use.op != "py.item" or not _takes_first(use):
            line = getattr(use.expr, "lineno", use.statement.node.lineno)
            return f"more of {variable_text(args[0])} than its first element is used at line {line}"
    return ""


def _takes_first(item: Node) -> bool:
    """Return whether a subscript takes the first element of a tuple, or an element that nothing
    uses; True for the parts of a tuple that is unpacked."""
    if "base" not in item.args:
        return (
            True  # of a tuple that was unpacked: what uses the element uses that of the unpacking
        )
    index = item.args.get("index")
    if index is None or type(index.const) is not int:
        return False
    return index.const == 0 or not item.output.every_use()
