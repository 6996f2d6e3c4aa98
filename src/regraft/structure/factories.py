"""Which layers a function may make, as far as its text says: `create_conv2d(...)` of timm."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from regraft.source.names import walk
from regraft.structure.frame import Function
from regraft.structure.optable import table
from regraft.structure.package import is_class_name

if TYPE_CHECKING:
    from regraft.structure.module import Module

_STEPS = 4  # functions that return what another one returns


def made_by(module: Module, home: Module, name: str) -> tuple[str, ...]:
    """Classes of `torch.nn` that a function of a file or its package returns an instance of; () where there is none.

    It may return anything else, too: nothing is executed, and no condition looked at.

    module  who asks, and depends on what is read
    home    the file that calls the function by this name, or a qualified one
    """
    return tuple(dict.fromkeys(_made_by(module, home, name, _STEPS)))


def _made_by(module: Module, home: Module, name: str, steps: int) -> Iterator[str]:
    found = _function(module, home, name) if steps else None
    if found is None:
        return
    owner, function = found
    for call in _returned(function):
        called = owner.names.resolve(call.func) or (call.func.id if isinstance(call.func, ast.Name) else "")
        if table().layer(called) is not None:
            yield called
        elif called:
            yield from _made_by(module, owner, called, steps - 1)


def _function(module: Module, home: Module, name: str) -> tuple[Module, Function] | None:
    here = home.names.definitions.get(name)
    found = (home, here) if here is not None or is_class_name(name) else module.imported(name)
    if found is None or found[1] is None or isinstance(found[1], ast.ClassDef):
        return None
    return found[0], found[1]


def _returned(function: Function) -> Iterator[ast.Call]:
    """Calls whose result a function returns, at once or by a name that it is given."""
    inside = [node for statement in function.body for node in walk(statement)]
    results = [node.value for node in inside if isinstance(node, ast.Return)]
    names = {one.id for one in results if isinstance(one, ast.Name)}
    for node in inside:
        if isinstance(node, ast.Assign):
            targets = {one.id for one in node.targets if isinstance(one, ast.Name)}
            if names & targets:
                results.append(node.value)
    return (one for one in results if isinstance(one, ast.Call))
