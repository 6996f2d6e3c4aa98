"""Variables of functions that have ended and that functions made in them still read."""

from __future__ import annotations

import ast
from types import FunctionType
from typing import Any

from regraft.splitting.program.values import Names
from regraft.splitting.specialising.followed_code import Frame, LocalFunction
from regraft.splitting.specialising.path_joins import name_prefixes
from regraft.splitting.specialising.state import Specialisation


def drop_ended_names(state: Specialisation, prefix: str) -> Names:
    """Return the names of `state` without the variables of the function that ends, except its
    result and what a local function may still read; variables of functions that ended before are
    dropped, too, where no local function reads them any more.

    prefix: what the variables of the function begin with, such as `f2_`.
    """
    state.ended_prefixes.add(prefix)
    captured = list_captured_names(state) if state.local_functions else set()
    return {
        key: value
        for key, value in state.names.items()
        if find_prefix(key) not in state.ended_prefixes
        or key.startswith(f"{find_prefix(key)}result")
        or name_prefixes(key) & captured
    }


def find_prefix(key: str) -> str:
    """Return what a name begins with up to the first underscore, `f2_` of `f2_x`; "" without
    one."""
    head, underscore, _ = key.partition("_")
    return head + underscore


def list_captured_names(state: Specialisation) -> set[str]:
    """Return the variables of ended functions that local functions read, which a name or a value
    not used yet holds, directly or through such variables."""
    unvisited = [
        value.example
        for key, value in state.names.items()
        if find_prefix(key) not in state.ended_prefixes
        or key.startswith(f"{find_prefix(key)}result")
    ]
    unvisited += [value.example for values in state.pending for value in values or ()]
    captured: set[str] = set()
    while unvisited:
        for function in list_local_functions(state, unvisited.pop()):
            for key in list_read_names(state, function) - captured:
                captured.add(key)
                if key in state.names:
                    unvisited.append(state.names[key].example)
    return captured


def list_local_functions(state: Specialisation, example: Any) -> list[LocalFunction]:
    """Return the local functions that a value is, or holds in tuples, lists and dictionaries."""
    if isinstance(example, FunctionType):
        function = state.local_functions.get(example)
        return [function] if function is not None else []
    elements: Any = ()
    if isinstance(example, dict):
        elements = example.values()
    elif isinstance(example, (tuple, list)):
        elements = example
    return [function for element in elements for function in list_local_functions(state, element)]


def list_read_names(state: Specialisation, function: LocalFunction) -> set[str]:
    """Return the variables of ended functions that a local function may read."""
    identifiers = {node.id for node in ast.walk(function.definition) if isinstance(node, ast.Name)}
    names: set[str] = set()
    frame: Frame | None = function.frame
    while frame is not None:
        if frame.prefix in state.ended_prefixes:
            names |= {frame.prefix + identifier for identifier in identifiers}
        frame = frame.outer
    return names
