"""State that the definitions of a file keep from one model to the next: modules and numbers of
classes, default values.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from regraft.verify.child.state import Watch, identical

_CONTAINERS = (list, tuple, set, frozenset)
_NUMBERS = (bool, int, float, str, type(None))


class SharedState:
    """The current state of modules that definitions of one file hold themselves, and of the numbers
    of its classes.

    Every model that the file builds may contain such a module: `default_act = nn.SiLU()` in the
    body of a class, a default value `act=nn.ReLU()`, a table of modules at the top level. Putting
    one of these models in evaluation puts that module in evaluation for the next model, too.
    """

    def __init__(self, scope: ModuleType, names: tuple[str, ...] = ()) -> None:
        """Save the state of the definitions and variables `names`, or of the whole file where there
        are none."""
        owners = [value for name, value in vars(scope).items() if name in (names or vars(scope))]
        self._modules: list[nn.Module] = []
        self._numbers: dict[tuple[type, str], Any] = {}
        for value in _reachable_objects(owners, scope.__name__):
            if isinstance(value, nn.Module):
                self._modules.append(value)
            elif isinstance(value, type):
                attributes = {
                    name: attribute
                    for name, attribute in vars(value).items()
                    if not name.startswith("__")
                }
                self._numbers |= {
                    (value, name): attribute
                    for name, attribute in attributes.items()
                    if isinstance(attribute, _NUMBERS)
                }
        self._watches = [Watch(module, None) for module in self._modules]
        parameters = dict.fromkeys(
            parameter for module in self._modules for parameter in module.parameters()
        )
        self._parameters = {
            parameter: (parameter.detach().clone(), parameter.requires_grad)
            for parameter in parameters
            if not is_lazy(parameter) and parameter.device.type != "meta"
        }

    def rewind(self) -> None:
        """Restore mode, attributes and weights of the modules, and the numbers of the classes."""
        for watch in self._watches:
            watch.rewind()
        for parameter, (value, wants_gradient) in self._parameters.items():
            parameter.requires_grad_(wants_gradient)
            if not identical(parameter.detach(), value):
                parameter.data = value.clone()
        for (cls, name), number in self._numbers.items():
            if vars(cls).get(name, cls) is not number:
                setattr(cls, name, number)


def _reachable_objects(values: list[Any], home: str) -> Iterator[Any]:
    """Yield the modules, and the classes of the file `home`, that values hold: in containers,
    classes, defaults of functions.
    """
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
    """Return the objects in a container, in the defaults of a function of the file, or in a partial
    call."""
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
