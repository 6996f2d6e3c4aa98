"""Sets that the host holds, of numbers and other constants, which may change."""

from __future__ import annotations

import ast
from typing import Any

from regraft.splitting.program.literals import literal
from regraft.splitting.program.residual import HostStep
from regraft.splitting.program.residual_expressions import MUTATORS, is_builtin_container, name
from regraft.splitting.program.statements import Evaluate
from regraft.splitting.program.value_kinds_and_parts import are_static
from regraft.splitting.program.values import (
    HostValue,
    StaticValue,
    TensorValue,
    Value,
    convert_to_host,
)
from regraft.splitting.specialising.code_running import run_code
from regraft.splitting.specialising.list_lengths_and_aliases import (
    check_change,
    check_no_list_read,
    is_ragged,
    note_ragged,
)
from regraft.splitting.specialising.state import Specialisation

METHODS = frozenset(
    {
        "add",
        "clear",
        "copy",
        "difference",
        "difference_update",
        "discard",
        "intersection",
        "intersection_update",
        "isdisjoint",
        "issubset",
        "issuperset",
        "remove",
        "union",
        "update",
    }
)
# `s |= t` as a method
CHANGES: dict[type[ast.operator], str] = {
    ast.BitOr: "update",
    ast.BitAnd: "intersection_update",
    ast.Sub: "difference_update",
}


def is_host_set(value: Value) -> bool:
    """Return whether a value is a set that the host holds."""
    return isinstance(value, HostValue) and type(value.example) is set


def is_closed(state: Specialisation, value: Value) -> bool:
    """Return whether all that a value holds is known: a constant, or a set under a name, into which
    only constants went, on every path."""
    if isinstance(value, StaticValue):
        return True
    has_name = isinstance(value.code, ast.Name) and value.code.id in state.names
    return is_host_set(value) and has_name and not is_ragged(state, value.example)


def check_members(state: Specialisation, node: ast.AST, values: list[Value]) -> None:
    """Raise Unsplittable for a value that holds anything but numbers, strings and other constants
    of the host."""
    for value in values:
        members = value.example if is_container(value.example) else [value.example]
        if isinstance(value, TensorValue) or any(literal(member) is None for member in members):
            raise state.refuse(
                node,
                "a set holds numbers and strings only here: of a tensor in a set the object counts,"
                " not its value; take its .item()",
            )


def is_container(example: Any) -> bool:
    """Return whether a value is a list, tuple, dictionary, set or range, whose elements go into a
    set."""
    return is_builtin_container(example) or isinstance(example, (set, frozenset, range))


def write_members(state: Specialisation, value: Value) -> ast.expr:
    """Return the host's expression of a number, list or set; a set that is known is written out."""
    if not (isinstance(value, StaticValue) and isinstance(value.example, (set, frozenset))):
        return state.write_for_host(value)
    members = [literal(member) or ast.Constant(member) for member in value.example]
    return ast.Set(members) if members else ast.Call(name("set"), [], [])


def make_set(
    state: Specialisation, node: ast.AST, code: ast.expr, operands: list[Value]
) -> HostValue:
    """Return a new set of the host, which residual code makes of the operands, under a new name."""
    check_members(state, node, operands)
    are_closed = all(is_closed(state, operand) for operand in operands)
    value = run_code(state, node, code)
    bound = state.bind_in_host(HostValue(value.example, code, set(value.second_example)))
    assert isinstance(bound, HostValue)
    if not are_closed:
        note_ragged(state, bound.example, [None])
    return bound


def call_set_method(
    state: Specialisation, node: ast.AST, base: Value, method_name: str, args: list[Value]
) -> Value:
    """Return the value of a call of a method of a set; a change is a step of the host. Raises
    Unsplittable for other methods, members that are no constants, and changes that something else
    may see."""
    if method_name not in METHODS:
        raise state.refuse(
            node, f"{method_name} of a set is not supported; write it with add, discard and in"
        )
    check_members(state, node, args)
    members = [write_members(state, arg) for arg in args]
    code = ast.Call(ast.Attribute(base.code, method_name, ast.Load()), members, [])
    if method_name not in MUTATORS and not method_name.endswith("_update"):
        value = run_code(state, node, code)
        if type(value.example) is set:
            return make_set(state, node, code, [base, *args])
        return convert_to_host(value)
    check_no_list_read(state, node)
    check_change(state, node, base.example)
    run_code(state, node, code)
    if not all(is_closed(state, arg) for arg in args):
        note_ragged(state, base.example, [None])
    state.steps.append(HostStep(Evaluate(code)))
    return state.static(None)


def evaluate_set_display(state: Specialisation, node: ast.Set) -> Value:
    """Evaluate `{a, b}`: a constant if its elements are and its function changes no set, else a new
    set of the host."""
    elements = [state.evaluate(element) for element in node.elts]
    check_members(state, node, elements)
    code = ast.Set([element.code for element in elements])
    if are_static(elements) and not getattr(node, "changes", False):
        return StaticValue({element.example for element in elements}, code)
    return make_set(state, node, code, elements)


def evaluate_set_comprehension(state: Specialisation, node: ast.SetComp) -> Value:
    """Evaluate `{f(x) for x in y}` as `set([f(x) for x in y])`."""
    elements = state.evaluate(ast.copy_location(ast.ListComp(node.elt, node.generators), node))
    return make_set(state, node, ast.Call(name("set"), [elements.code], []), [elements])
