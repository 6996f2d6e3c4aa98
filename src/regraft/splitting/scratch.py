"""Attributes that a call assigns to modules before it reads them: variables of the call, in a split network, too.

They are taken off the modules while the network is specialised, so that nothing reads what an earlier call left there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

Attribute = tuple[str, str]  # the path of a module, and a name

T = TypeVar("T")


class Found(BaseException):
    """Specialisation has come to the assignment of an attribute that was not known."""

    def __init__(self, attribute: Attribute) -> None:
        super().__init__()
        self.attribute = attribute


@contextmanager
def stores(model: torch.nn.Module) -> Iterator[list[Attribute]]:
    """Note the attributes that are assigned to modules of `model` for a while, but for layers that were there."""
    paths = {id(module): path for path, module in model.named_modules(remove_duplicate=False)}
    found: list[Attribute] = []
    store = torch.nn.Module.__setattr__

    def noted(module: torch.nn.Module, key: str, value: Any) -> None:
        if id(module) in paths and not is_there(module, key, value):
            found.append((paths[id(module)], key))
        store(module, key, value)

    torch.nn.Module.__setattr__ = noted
    try:
        yield found
    finally:
        torch.nn.Module.__setattr__ = store


def is_there(module: torch.nn.Module, called: str, value: Any) -> bool:
    """Whether a layer, weight or buffer is assigned once more, as in `self.layer = self.layer.to(dtype)`."""
    return value is not None and any(held.get(called) is value for held in registered(module))


def registered(module: torch.nn.Module) -> tuple[dict[str, Any], ...]:
    return module._modules, module._parameters, module._buffers


def is_plain(module: torch.nn.Module, called: str) -> bool:
    """Whether an attribute is the module's own affair: no layer, weight or buffer, and nothing that its class has."""
    return not any(called in held for held in registered(module)) and not hasattr(type(module), called)


def without(model: torch.nn.Module, known: list[Attribute], run: Callable[[set[Attribute]], T]) -> T:
    """What `run` gives while modules lack the attributes that calls assign; those that it finds are taken off, too."""
    attributes = {(path, called) for path, called in known if is_plain(model.get_submodule(path), called)}
    before: dict[Attribute, Any] = {}
    try:
        while True:
            for attribute in attributes - before.keys():
                held = vars(model.get_submodule(attribute[0]))
                before[attribute] = [held[attribute[1]]] if attribute[1] in held else []
            for attribute in attributes:
                take_off(model, attribute)
            try:
                return run(attributes)
            except Found as found:
                attributes.add(found.attribute)
    finally:
        for attribute, held in before.items():
            take_off(model, attribute)
            for value in held:
                vars(model.get_submodule(attribute[0]))[attribute[1]] = value


def take_off(model: torch.nn.Module, attribute: Attribute) -> None:
    vars(model.get_submodule(attribute[0])).pop(attribute[1], None)
