"""Layer types that a function may return according to its text, such as those of
`create_conv2d(...)` of timm."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from regraft.source.syntax_iterators import walk
from regraft.structure.function_surroundings import Function
from regraft.structure.optable import table
from regraft.structure.package import is_class_name

if TYPE_CHECKING:
    from regraft.structure.module_structures import Module

_MAX_STEPS = 4  # length of a chain of functions that return the result of the next


def returned_layer_types(module: Module, home: Module, name: str) -> tuple[str, ...]:
    """Return the classes of `torch.nn` that a function of a file or its package may return
    instances of.

    The result is () when there are none. The function may also return anything else: nothing is
    executed, and no condition is looked at.

    module  the module that the result is for; it depends on the files that are read
    home    the module of the file that calls the function
    name    the function's name in that file, or its qualified name
    """
    return tuple(dict.fromkeys(_find_layer_types(module, home, name, _MAX_STEPS)))


def _find_layer_types(module: Module, home: Module, name: str, steps: int) -> Iterator[str]:
    """Yield the layer types that a function may return, following at most `steps` functions."""
    definition = _find_function(module, home, name) if steps else None
    if definition is None:
        return
    owner, function = definition
    for call in _returned_calls(function):
        called = owner.names.resolve(call.func) or (
            call.func.id if isinstance(call.func, ast.Name) else ""
        )
        if table().layer(called) is not None:
            yield called
        elif called:
            yield from _find_layer_types(module, owner, called, steps - 1)


def _find_function(module: Module, home: Module, name: str) -> tuple[Module, Function] | None:
    """Return the module and the definition of a function; None when the name is unknown or that of
    a class."""
    local = home.names.definitions.get(name)
    definition = (
        (home, local) if local is not None or is_class_name(name) else module.imported(name)
    )
    if definition is None or definition[1] is None or isinstance(definition[1], ast.ClassDef):
        return None
    return definition[0], definition[1]


def _returned_calls(function: Function) -> Iterator[ast.Call]:
    """Yield the calls whose result a function returns, directly or by a name that the result is
    assigned to."""
    nodes = [node for statement in function.body for node in walk(statement)]
    results = [node.value for node in nodes if isinstance(node, ast.Return)]
    names = {result.id for result in results if isinstance(result, ast.Name)}
    for node in nodes:
        if isinstance(node, ast.Assign):
            targets = {target.id for target in node.targets if isinstance(target, ast.Name)}
            if names & targets:
                results.append(node.value)
    return (result for result in results if isinstance(result, ast.Call))
