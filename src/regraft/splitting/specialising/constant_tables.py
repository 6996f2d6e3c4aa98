"""Containers that are known before the call, such as `self.scales`, of which the host takes an
element by a key known only at run time."""

from __future__ import annotations

import ast
import collections
from typing import Any

import torch

from regraft.splitting.program.literals import literal
from regraft.splitting.program.possible_constants import possible_constants
from regraft.splitting.program.residual_expressions import is_torch
from regraft.splitting.program.statements import read_names
from regraft.splitting.program.values import HostValue, StaticValue, Value
from regraft.splitting.specialising.objects_made_in_forward import holds_stand_in
from regraft.splitting.specialising.state import Specialisation

# the modules of which an index gives a module
MODULE_CONTAINERS = (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)
PARAMETER_CONTAINERS = (torch.nn.ParameterList, torch.nn.ParameterDict)
DICTIONARIES = (dict, collections.OrderedDict)  # a subclass may answer for keys that it lacks
_WITH_KEYS = (torch.nn.ModuleDict, torch.nn.ParameterDict, *DICTIONARIES)
# keywords of functions of torch that an exporter takes as constants
_SELECTING = frozenset({"is_causal", "descending", "largest", "keepdim", "stable", "align_corners"})
MAX_TABLE_LENGTH = 4096  # most numbers of a range that are written down


class Choice(Exception):
    """Signals that a value of the host chooses a module, or an object in a constant container: the
    statement is specialised once for each.

    index: the expression of the index in the source. keys: the indices that it may have. count: how
    many positions there are where an index below zero counts from the end, and is none of `keys`;
    else 0. error: the name of the exception that the container raises for another index.
    """

    def __init__(self, index: ast.expr, keys: list[Any], count: int, error: str) -> None:
        super().__init__()
        self.index, self.keys, self.count, self.error = index, keys, count, error


def choose_truths(
    state: Specialisation, node: ast.Call, function: Any, keywords: dict[str, Value]
) -> None:
    """Replace in `keywords`, of a call of a function of torch, the truth values that the host
    computes and that select what the function does (`_SELECTING`) by the chosen ones; raise Choice
    for one that is not chosen yet. Nothing is replaced for another function."""
    for keyword in node.keywords if is_torch(function) else []:
        value = keywords.get(keyword.arg or "")
        if keyword.arg not in _SELECTING or not isinstance(value, HostValue):
            continue
        if type(value.example) is not bool:
            continue
        chosen = state.chosen_indices.get(id(keyword.value))
        if chosen is None:
            raise Choice(keyword.value, [False, True], 0, "TypeError")
        keywords[keyword.arg] = chosen


def write_table(value: StaticValue) -> StaticValue:
    """Return a constant dictionary or range with an expression that the host can read, a display of
    its items; any other value, and a dictionary of what has no literal, as it is."""
    display = table_display(value.example)
    return value if display is None else value.with_code(display)


def table_display(container: Any) -> ast.expr | None:
    """Return the display of a dictionary of constants, or the tuple of a range's numbers; None for
    anything else."""
    if isinstance(container, range) and len(container) <= MAX_TABLE_LENGTH:
        return literal(tuple(container))
    if type(container) not in DICTIONARIES:
        return None
    keys, values = (literal(list(part)) for part in (container, container.values()))
    if not (isinstance(keys, ast.List) and isinstance(values, ast.List)):
        return None
    return ast.Dict([*keys.elts], values.elts)


def choose_element(
    state: Specialisation, node: ast.Subscript, base: StaticValue, index: Value
) -> None:
    """Raise Choice where an index known only at run time gives a module, or an element without a
    literal of a constant container: a tensor, a function, a dictionary; raise Unsplittable for such
    a slice of modules."""
    if not holds_objects(state, base.example):
        return
    if isinstance(index.code, ast.Slice):
        raise state.refuse(
            node,
            f"a slice of a {type(base.example).__name__} between bounds known only at run time is"
            " not supported; loop over all of it, and leave the loop under a condition",
        )
    has_keys = isinstance(base.example, _WITH_KEYS)
    is_known = possible_constants(index) is not None
    keys = list_possible_keys(base.example, index)
    count = 0 if has_keys or is_known else len(base.example)
    raise Choice(node.slice, keys, count, error_of(base.example) if has_keys else "IndexError")


def error_of(dictionary: Any) -> str:
    """Return the name of the exception that a dictionary of modules, parameters or anything else
    raises for a key that it lacks."""
    return "AttributeError" if isinstance(dictionary, torch.nn.ParameterDict) else "KeyError"


def holds_objects(state: Specialisation, container: Any) -> bool:
    """Return whether a container is one of modules or parameters, or a list, tuple or dictionary,
    not of forward's making, that has keys with literals and an element without one."""
    if isinstance(container, (*MODULE_CONTAINERS, *PARAMETER_CONTAINERS)):
        return True
    if type(container) not in (list, tuple, *DICTIONARIES) or holds_stand_in(state, container):
        return False
    is_dictionary = isinstance(container, dict)
    elements = list(container.values() if is_dictionary else container)
    return literal(elements) is None and (not is_dictionary or literal(list(container)) is not None)


def list_possible_keys(container: Any, index: Value) -> list[Any]:
    """Return the keys or positions in a container that an index may be: those among its constants,
    or all, from the start, where its constants are not known."""
    has_keys, constants = isinstance(container, _WITH_KEYS), possible_constants(index)
    keys = list(container.keys()) if has_keys else list(range(len(container)))
    if constants is None:
        return keys
    return [
        constant
        for constant in constants
        if constant in keys
        or (not has_keys and type(constant) is int and -len(keys) <= constant < 0)
    ]


def check_host_operands(state: Specialisation, node: ast.AST, operands: list[Value]) -> None:
    """Raise Unsplittable where an operation of the host reads an object that only the network has,
    such as an array of NumPy in an attribute."""
    for operand in operands:
        if not isinstance(operand, StaticValue):
            continue
        names = read_names(operand.code)
        if "self" in names or names & state.globals.keys():
            raise state.refuse(
                node,
                f"a {type(operand.example).__name__} is read here by a number or another value"
                " known only at run time, which is supported for lists, tuples, dictionaries and"
                " tensors",
            )
