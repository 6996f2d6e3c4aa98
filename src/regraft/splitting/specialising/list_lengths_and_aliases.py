"""Lists of the host: whether their lengths are known, which they are if all paths that lead here
agree on them, and whether a list may change."""

from __future__ import annotations

import ast
from typing import Any

from regraft.splitting.program.residual_expressions import holds_number
from regraft.splitting.program.statements import read_names
from regraft.splitting.program.value_kinds_and_parts import list_lengths, lists_in
from regraft.splitting.program.values import HostValue, Names, Value
from regraft.splitting.specialising.state import Specialisation

# functions that may give a number
NUMBER_FUNCTIONS = frozenset({"int", "round", "abs", "bool", "sum", "max", "min"})


def is_ragged(state: Specialisation, example: Any) -> bool:
    """Return whether `state` notes a list in `example`, or `example` itself, as ragged: its length
    differs between the paths here; of a set, whether not all elements are known."""
    return any(id(inner_list) in state.ragged for inner_list in lists_in(example))


def has_definite_length(state: Specialisation, value: Value) -> bool:
    """Return whether a value is a list of the host, under a name, whose length is known."""
    has_name = isinstance(value.code, ast.Name) and value.code.id in state.names
    return (
        isinstance(value, HostValue)
        and has_name
        and isinstance(value.example, list)
        and id(value.example) not in state.ragged
    )


def note_ragged(state: Specialisation, example: Any, alternatives: list[Any]) -> None:
    """Note in `state.ragged` the lists in `example`, the value that stands for all `alternatives`,
    as of unknown length, if one of them has other lengths or is noted there itself."""
    if any(
        list_lengths(alternative) != list_lengths(example) or is_ragged(state, alternative)
        for alternative in alternatives
    ):
        state.ragged.update((id(inner_list), inner_list) for inner_list in lists_in(example))


def length_depends(state: Specialisation, code: ast.expr) -> bool:
    """Return whether the length of the list that residual code gives depends on a number that data
    decide, or on a list whose length does."""
    if reads_unknown_length(state, code):
        return True
    deciding: list[ast.expr] = []
    for node in ast.walk(code):
        if isinstance(node, ast.Slice):
            deciding.append(node)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            if may_give_list(state, node.left) or may_give_list(state, node.right):
                deciding.append(node)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "range"
        ):
            deciding += node.args
    return any(is_unknown_number(state, node) for part in deciding for node in ast.walk(part))


def reads_unknown_length(state: Specialisation, code: ast.expr) -> bool:
    """Return whether residual code reads a list of unknown length, or makes one of a string or
    tuple."""
    operands = [state.names[key] for key in read_names(code) if key in state.names]
    return any(is_ragged(state, operand.example) for operand in operands) or any(
        lists_text_or_tuple(state, node) for node in ast.walk(code)
    )


def lists_text_or_tuple(state: Specialisation, code: ast.AST) -> bool:
    """Return whether code is `list(s)` or `sorted(s)` of a string or tuple that the host computes
    and that is not written out, whose length may be another one for other data."""
    if not isinstance(code, ast.Call) or getattr(code.func, "id", "") not in ("list", "sorted"):
        return False
    return any(is_unknown_text_or_tuple(state, sequence) for sequence in code.args)


def is_unknown_text_or_tuple(state: Specialisation, code: ast.expr) -> bool:
    """Return whether code is a string made at run time, or the name of a string or tuple that the
    host computes and that is not written out."""
    if isinstance(code, ast.Call):
        return getattr(code.func, "id", "") == "str"
    value = state.names.get(code.id) if isinstance(code, ast.Name) else None
    if isinstance(value, HostValue) and type(value.example) in (str, tuple):
        return not value.fields
    return isinstance(code, ast.JoinedStr)


def may_give_list(state: Specialisation, code: ast.expr) -> bool:
    """Return whether an expression of the host looks as if it gave a list: a name of one, a
    display, a slice, a sum, or a call such as `list` or `tolist`."""
    if isinstance(code, ast.Name):
        return code.id in state.names and isinstance(state.names[code.id].example, list)
    if isinstance(code, ast.BinOp):
        return may_give_list(state, code.left) or may_give_list(state, code.right)
    if isinstance(code, ast.Subscript):
        return may_give_list(state, code.value)
    if isinstance(code, ast.Call):
        function_name = (
            code.func.attr if isinstance(code.func, ast.Attribute) else getattr(code.func, "id", "")
        )
        return function_name in ("list", "sorted", "tolist", "copy")
    return isinstance(code, ast.List)


def is_unknown_number(state: Specialisation, code: ast.AST) -> bool:
    """Return whether code of the host may be a number that data decide: a name or element of an
    integer, a call of `item`, or of one of NUMBER_FUNCTIONS."""
    if isinstance(code, ast.Name) and code.id in state.names:
        value = state.names[code.id]
        return isinstance(value, HostValue) and isinstance(value.example, int)
    if isinstance(code, ast.Subscript) and not isinstance(code.slice, ast.Slice):
        operands = [state.names[key] for key in read_names(code.value) if key in state.names]
        return any(
            isinstance(operand, HostValue) and holds_number(operand.example) for operand in operands
        )
    if isinstance(code, ast.Call) and isinstance(code.func, ast.Attribute):
        return code.func.attr == "item"
    return (
        isinstance(code, ast.Call)
        and isinstance(code.func, ast.Name)
        and code.func.id in NUMBER_FUNCTIONS
    )


def check_change(state: Specialisation, node: ast.AST, example: Any) -> None:
    """Raise Unsplittable for the change of a list or dictionary, `example`, that belongs to the
    caller, or that two names hold on some paths only."""
    if id(example) in state.caller_containers:
        raise state.refuse(
            node, "what an argument holds is changed here, which the caller would see"
        )
    if id(example) in state.partly_aliased:
        raise state.refuse(
            node,
            "a list changes that another name holds, too, on some of the paths that lead here",
        )


def aliases_of_lists(names: Names) -> dict[tuple[str, int], set[tuple[str, int]]]:
    """Return for each list in a value of the host, by its name and its place in the value, the
    other names and places of the same list."""
    holders: dict[int, set[tuple[str, int]]] = {}
    for key, value in names.items():
        if isinstance(value, HostValue):
            for place, inner_list in enumerate(lists_in(value.example)):
                holders.setdefault(id(inner_list), set()).add((key, place))
    return {holder: group - {holder} for group in holders.values() for holder in group}


def note_partly_aliased(state: Specialisation, paths: list[Names]) -> None:
    """Note in `state.partly_aliased` the lists that two names hold on some of the paths that meet,
    and not on others. paths: the names at the end of each."""
    aliases_by_path = list(map(aliases_of_lists, paths))
    for key, place in {holder for aliases in aliases_by_path for holder in aliases}:
        if any(
            aliases.get((key, place), set()) != aliases_by_path[0].get((key, place), set())
            for aliases in aliases_by_path[1:]
        ):
            inner_lists = list(lists_in(state.names[key].example)) if key in state.names else []
            state.partly_aliased.update(
                (id(inner_list), inner_list) for inner_list in inner_lists[place : place + 1]
            )


def holds_list(example: Any) -> bool:
    """Return whether `example` is a list, dictionary or set of the host, or a tuple that holds
    one."""
    return isinstance(example, (list, dict, set)) or (
        type(example) is tuple and any(map(holds_list, example))
    )


def check_no_list_read(state: Specialisation, node: ast.AST, base: Value | None = None) -> None:
    """Raise Unsplittable for the change of a list at `node` if the expression around it has
    evaluated, but not used yet, a value that reads a list. base: the list, if it is known; one that
    a comprehension fills is read by nothing yet."""
    if base is not None and getattr(base.code, "id", "") in state.lists_being_filled:
        return
    for value in state.pending_values():
        own_codes = {id(part) for part in value.fields.values()} | {id(value.code)}
        name_nodes = (
            part
            for part in ast.walk(value.code)
            if isinstance(part, ast.Name) and id(part) not in own_codes
        )
        if any(
            part.id in state.names and holds_list(state.names[part.id].example)
            for part in name_nodes
        ):
            raise state.refuse(node, "a list changes within an expression that reads it, too")
