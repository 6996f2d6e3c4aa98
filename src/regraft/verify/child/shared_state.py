"""What the definitions of a file keep from one model to the next: modules and numbers of classes, default values."""

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
    """The modules that definitions of one file hold themselves, and the numbers of its classes, as they are now.

    Every model that the file builds may contain such a module: `default_act = nn.SiLU()` in the body of a class, a
    default value `act=nn.ReLU()`, a table of modules at the top level. Putting one of these models in evaluation puts
    that module in evaluation for the next model, too.
    """

    def __init__(self, scope: ModuleType, names: tuple[str, ...] = ()) -> None:
        """names: the definitions and variables that count; all of the file where there are none."""
        owners = [value for name, value in vars(scope).items() if name in (names or vars(scope))]
        self._modules: list[nn.Module] = []
        self._numbers: dict[tuple[type, str], Any] = {}
        for value in _reachable(owners, scope.__name__):
            if isinstance(value, nn.Module):
                self._modules.append(value)
            elif isinstance(value, type):
                own = {name: held for name, held in vars(value).items() if not name.startswith("__")}
                self._numbers |= {(value, name): held for name, held in own.items() if isinstance(held, _NUMBERS)}
        self._watches = [Watch(module, None) for module in self._modules]
        parameters = dict.fromkeys(parameter for module in self._modules for parameter in module.parameters())
        self._parameters = {
            each: (each.detach().clone(), each.requires_grad)
            for each in parameters
            if not is_lazy(each) and each.device.type != "meta"
        }

    def rewind(self) -> None:
        """Give the modules their mode, attributes and weights back, and the classes their numbers."""
        for watch in self._watches:
            watch.rewind()
        for parameter, (value, wants_gradient) in self._parameters.items():
            parameter.requires_grad_(wants_gradient)
            if not identical(parameter.detach(), value):
                parameter.data = value.clone()
        for (cls, name), number in self._numbers.items():
            if vars(cls).get(name, cls) is not number:
                setattr(cls, name, number)


def _reachable(values: list[Any], home: str) -> Iterator[Any]:
    """Yield modules and classes of the file `home` that values hold: in containers, classes, functions' defaults."""
    pending, seen = list(values), set()
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, nn.Module):
            yield value
        elif isinstance(value, type) and value.__module__ == home:
            yield value
            pending += vars(value).values()
        else:
            pending += _held(value, home)


def _held(value: Any, home: str) -> list[Any]:
    """Return what a container, a function of the file or a partial call holds."""
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
