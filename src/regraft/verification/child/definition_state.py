"""Save and restore the state that the definitions of a file keep from one model to the next:
modules and plain values in class attributes, and default values."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from regraft.execution.compare import identical
from regraft.verification.child.state_watch import Watch

_CONTAINERS = (list, tuple, set, frozenset)
_PLAIN_TYPES = (bool, int, float, str, type(None))


class DefinitionState:
    """The current state of modules that definitions of one file hold themselves, and of the plain
    values (numbers, strings, None) in attributes of its classes.

    Every model that the file builds may contain such a module: `default_act = nn.SiLU()` in the
    body of a class, a default value `act=nn.ReLU()`, a table of modules at the top level. Putting
    one of these models in evaluation puts that module in evaluation for the next model, too.
    """

    def __init__(self, scope: ModuleType, names: tuple[str, ...] = ()) -> None:
        """Save the state of the definitions and variables `names`, or of the whole file where there
        are none."""
        owners = [value for name, value in vars(scope).items() if name in (names or vars(scope))]
        values = list(_reachable_objects(owners, scope.__name__))
        modules = [value for value in values if isinstance(value, nn.Module)]
        classes = [value for value in values if isinstance(value, type)]
        self._plain_values = {
            (cls, name): value for cls in classes for name, value in _plain_attributes(cls)
        }
        self._watches = [Watch(module, None) for module in modules]
        self._parameters = _saved_parameters(modules)

    def rewind(self) -> None:
        """Restore in place the mode, attributes and weights of the modules, and the plain values of
        the classes, as they were at construction; class attributes that are new stay."""
        for watch in self._watches:
            watch.rewind()
        for parameter, (value, wants_gradient) in self._parameters.items():
            parameter.requires_grad_(wants_gradient)
            if not identical(parameter.detach(), value):
                parameter.data = value.clone()
        for (cls, name), value in self._plain_values.items():
            if vars(cls).get(name, cls) is not value:
                setattr(cls, name, value)


def _plain_attributes(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield pairs of a name and a plain value (number, boolean, string or None) among the class's
    own attributes, except names that begin with two underscores."""
    for name, value in vars(cls).items():
        if isinstance(value, _PLAIN_TYPES) and not name.startswith("__"):
            yield name, value


def _saved_parameters(modules: list[nn.Module]) -> dict[nn.Parameter, tuple[Any, bool]]:
    """Return a copy of the value, and the need of a gradient, of each parameter that has a value,
    each parameter once; lazy parameters and those on the meta device are skipped."""
    parameters = dict.fromkeys(parameter for module in modules for parameter in module.parameters())
    return {
        parameter: (parameter.detach().clone(), parameter.requires_grad)
        for parameter in parameters
        if not is_lazy(parameter) and parameter.device.type != "meta"
    }


def _reachable_objects(values: list[Any], home: str) -> Iterator[Any]:
    """Yield the modules, and the classes of the file `home`, that values hold, each once, the
    values themselves included: in containers, classes of the file, defaults of its functions. The
    inside of a module is not searched."""
    pending, visited = list(values), set()
    while pending:
        value = pending.pop()
        if id(value) in visited:
            continue
        visited.add(id(value))
        if isinstance(value, nn.Module):
            yield value
        elif isinstance(value, type) and value.__module__ == home:
            yield value
            pending += vars(value).values()
        else:
            pending += _contents(value, home)


def _contents(value: Any, home: str) -> list[Any]:
    """Return the elements of a container, the values of a dictionary, the function of a static or
    class method, the parts of a partial call, or the defaults of a function of the file; else
    []."""
    if type(value) in _CONTAINERS:
        return list(value)
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, staticmethod | classmethod):
        return [value.__func__]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, FunctionType) and value.__module__ == home:
        return [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    return []
