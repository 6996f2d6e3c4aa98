"""Operators on tuples, lists, sets and dictionaries."""

from __future__ import annotations

import ast
import copy
import inspect
from collections.abc import KeysView
from dataclasses import dataclass, replace

from regraft.splitting.program.literals import literal
from regraft.splitting.program.possible_constants import TRUTHS
from regraft.splitting.program.value_kinds_and_parts import has_kind
from regraft.splitting.program.values import HostValue, StaticValue, Value, convert_to_host
from regraft.splitting.specialising.branches import evaluate_truth
from regraft.splitting.specialising.code_running import run_code
from regraft.splitting.specialising.dictionaries import refuse_key
from regraft.splitting.specialising.elements import list_element_codes
from regraft.splitting.specialising.host_sets import (
    check_members,
    is_closed,
    is_host_set,
    make_set,
    write_members,
)
from regraft.splitting.specialising.object_methods import call_object_method
from regraft.splitting.specialising.objects_made_in_forward import (
    get_places,
    is_dict_stand_in,
    is_stand_in,
)
from regraft.splitting.specialising.state import Specialisation

SET_TYPES = (set, frozenset)
MAX_LIST_LENGTH = 4096  # most repetitions of a list display that are written down


def is_flat_list(code: ast.expr) -> bool:
    """Return whether `code` is a list display of constants and names only."""
    return isinstance(code, ast.List) and all(
        isinstance(element, (ast.Constant, ast.Name)) for element in code.elts
    )


Operator = ast.BinOp | ast.UnaryOp | ast.Compare


@dataclass(frozen=True)
class Operation:
    """An operator of the source with its operands, and the residual expression for it."""

    node: Operator
    operands: list[Value]
    code: ast.expr

    @property
    def operator_type(self) -> type[ast.AST]:
        """Return the type of the operator, of which a comparison has one here."""
        node = self.node
        return type(node.ops[0] if isinstance(node, ast.Compare) else node.op)


def find_key(state: Specialisation, operation: Operation) -> Value | None:
    """Return the value of `in` or `not in` of a dictionary that forward makes; None for other
    containers. For a key known only at run time Unsplittable is raised, or None returned where the
    dictionary's class has a `__contains__` of its own."""
    key, container = operation.operands
    if not is_dict_stand_in(state, container.example):
        return None
    has_own = type(container.example).__contains__ is not dict.__contains__
    if isinstance(key, HostValue) and not has_own:
        raise refuse_key(state, operation.node)
    if not isinstance(key, StaticValue):
        return None
    is_contained = ("item", key.example) in get_places(state, operation.node, container.example)
    return state.static(is_contained == (operation.operator_type is ast.In))


def find_in_container(state: Specialisation, operation: Operation) -> Value | None:
    """Return the value of `in` or `not in` of an object that forward makes whose class has
    `__contains__`, and of a set, or of the keys of a dictionary, of which all is known; None for
    other operands. Raises Unsplittable for a tensor in a set."""
    node, (key, container) = operation.node, operation.operands
    sign = operation.operator_type is ast.In
    members = write_known_members(state, container)
    if members is not None and isinstance(key, HostValue):
        code = ast.Compare(key.code, [operation.node.ops[0]], [members])  # type: ignore[union-attr]
        return replace(convert_to_host(run_code(state, node, code)), among=TRUTHS)
    if is_host_set(container):
        check_members(state, node, [key])
        if not (is_closed(state, container) and isinstance(key, StaticValue)):
            return None
        return state.static((key.example in container.example) == sign)
    method = getattr(container.example, "__contains__", None)
    if not is_stand_in(state, container.example) or not inspect.ismethod(method):
        return None
    value = evaluate_truth(state, call_object_method(state, node, method, [key], {}))
    return value if sign else negate(state, value)


def write_known_members(state: Specialisation, container: Value) -> ast.expr | None:
    """Return the expression of what is in a set, or of the keys of a dictionary, if all of it is
    known; None for other containers, and for keys without a literal."""
    if not isinstance(container, StaticValue) or is_stand_in(state, container.example):
        return None
    if isinstance(container.example, SET_TYPES):
        return write_members(state, container)
    has_keys = isinstance(container.example, (dict, KeysView))
    return literal(tuple(container.example)) if has_keys else None


def negate(state: Specialisation, truth: StaticValue | HostValue) -> Value:
    """Return `not truth`."""
    if isinstance(truth, StaticValue):
        return state.static(not truth.example)
    code = ast.UnaryOp(ast.Not(), truth.code)
    return HostValue(not truth.example, code, not truth.second_example, among=TRUTHS)


def combine_sets(state: Specialisation, operation: Operation) -> Value | None:
    """Return the union, intersection or difference of two sets, one of which the host holds, as a
    new one; None for other operands."""
    if not any(map(is_host_set, operation.operands)):
        return None
    node = copy.copy(operation.node)
    assert isinstance(node, ast.BinOp)
    node.left, node.right = (write_members(state, operand) for operand in operation.operands)
    return make_set(state, node, node, operation.operands)


def add_tuples(state: Specialisation, operation: Operation) -> Value | None:
    """Return the sum of two tuples written out, one of which the host computes, as one tuple; None
    for other operands."""
    left, right = (list_element_codes(operand) for operand in operation.operands)
    if left is None or right is None or not has_kind(operation.operands, HostValue):
        return None
    code = ast.Tuple([*left, *right], ast.Load())
    return convert_to_host(run_code(state, operation.node, code))


def add_lists(state: Specialisation, operation: Operation) -> Value | None:
    """Return the sum of two lists, one of which the host makes; None for other operands."""
    are_lists = all(isinstance(operand.example, list) for operand in operation.operands)
    if not are_lists or not has_kind(operation.operands, HostValue):
        return None
    return convert_to_host(run_code(state, operation.node, operation.code))


def repeat_list(state: Specialisation, operation: Operation) -> Value | None:
    """Return `[x] * 3` as a list display; None where the list is not written in place or has
    elements other than constants and names, and where the number is not known or above
    MAX_LIST_LENGTH."""
    display, repeats = operation.operands[0].code, operation.operands[1].example
    is_known_number = isinstance(operation.operands[1], StaticValue) and type(repeats) is int
    if not is_flat_list(display) or not is_known_number or repeats > MAX_LIST_LENGTH:
        return None
    code = ast.List(display.elts * repeats, ast.Load())  # type: ignore[attr-defined]
    return convert_to_host(run_code(state, operation.node, code))
