"""Conditions about the steps of a loop: numbers, subscripts and values that are carried on."""

from __future__ import annotations

from regraft.dsl.syntax import Const
from regraft.matching.conditions.values_for_conditions import Arguments, Scope, variable_text
from regraft.matching.loop_values import is_before, is_carried, step_nodes
from regraft.structure.values_and_nodes import MISSING, Value


def loop_step(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the first value is computed from the number of a loop's step, and the
    second is computed before the loop."""
    number, before = scope.value(args[0]), scope.value(args[1])
    steps = step_nodes(number) if number is not None else ()
    if not steps:
        return f"{variable_text(args[0])} is not the number of a step of a loop"
    if before is not None and not is_before(before, steps[-1]):
        return f"{variable_text(args[1])} is computed inside the loop"
    return ""


def basic_index(args: Arguments, scope: Scope) -> str:
    """Return a reason where an index of a subscript may be a tensor or a list, which PyTorch does
    not apply one after the other with its other indices, or where not all of its first indices are
    slices; the second argument is their number."""
    value, count = scope.value(args[0]), args[1]
    node = value.node if value is not None else None
    index = node.args.get("index") if node is not None and node.op == "py.item" else None
    if index is None or not isinstance(count, Const) or not isinstance(count.value, int):
        return ""
    items = index.items or (index,)
    if not all(map(_is_slice, items[: count.value])):
        return f"not only slices are before the number in {variable_text(args[0])}"
    if not all(map(_is_basic_index, items)):
        return f"an index of {variable_text(args[0])} may be a tensor"
    return ""


def _is_basic_index(index: Value) -> bool:
    """Return whether an index is a slice, `None`, `...` or a number."""
    if index.const is not MISSING:
        return not isinstance(index.const, bool | str)
    return _is_slice(index) or index.kind == "int" or bool(step_nodes(index))


def _is_slice(index: Value) -> bool:
    """Return whether an index is a slice, written with colons."""
    return index.node is not None and index.node.op == "py.slice"


def carried(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the first value is what the loop carries to a step from the one
    before, where it was the second value."""
    state, result = scope.value(args[0]), scope.value(args[1])
    if state is None or result is None or is_carried(state, result):
        return ""
    return f"{variable_text(args[0])} is not {variable_text(args[1])} of the step before"
