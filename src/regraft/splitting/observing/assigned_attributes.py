"""Attributes that a call assigns to modules before it reads them: variables of the call, in a split
network, too.

They are removed from the modules while the network is specialised, so that nothing reads the values
of earlier calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

Attribute = tuple[str, str]  # the path of a module, and a name

T = TypeVar("T")


class NewAttribute(BaseException):
    """Signals that specialisation met an assignment to `attribute`, which is not among those that
    calls are known to assign."""

    def __init__(self, attribute: Attribute) -> None:
        super().__init__()
        self.attribute = attribute


@contextmanager
def record_stores(model: torch.nn.Module) -> Iterator[list[Attribute]]:
    """Yield a list that collects the attributes assigned to modules of `model` in the `with` block,
    in order; a layer, weight or buffer that is assigned once more is left out, and so is the mode
    where it stays."""
    paths = {id(module): path for path, module in model.named_modules(remove_duplicate=False)}
    attributes: list[Attribute] = []
    original = torch.nn.Module.__setattr__

    def note_store(module: torch.nn.Module, key: str, value: Any) -> None:
        """Assign an attribute; add it to the list if the module is one of the network."""
        is_mode = key == "training" and value is module.training  # as eval() does
        if id(module) in paths and not is_mode and not is_reassigned(module, key, value):
            attributes.append((paths[id(module)], key))
        original(module, key, value)

    torch.nn.Module.__setattr__ = note_store
    try:
        yield attributes
    finally:
        torch.nn.Module.__setattr__ = original


def is_reassigned(module: torch.nn.Module, attribute_name: str, value: Any) -> bool:
    """Return whether a value is a layer, weight or buffer that is assigned to its own attribute
    once more, as in `self.layer = self.layer.to(dtype)`."""
    return value is not None and any(
        registry.get(attribute_name) is value for registry in registries(module)
    )


def registries(module: torch.nn.Module) -> tuple[dict[str, Any], ...]:
    """Return the dictionaries of the module's layers, parameters and buffers."""
    return module._modules, module._parameters, module._buffers


def is_plain(module: torch.nn.Module, attribute_name: str) -> bool:
    """Return whether an attribute is no layer, weight or buffer, and nothing that the module's
    class has."""
    return not any(attribute_name in registry for registry in registries(module)) and not hasattr(
        type(module), attribute_name
    )


def run_without(
    model: torch.nn.Module, assigned: list[Attribute], run: Callable[[set[Attribute]], T]
) -> T:
    """Call `run` with the set of attributes that calls assign, while the modules lack these; return
    its result. The attributes are put back afterwards.

    assigned: these attributes, of which only plain ones are removed (`is_plain`). Where `run`
    raises NewAttribute, its attribute is removed, too, and `run` is called again.
    """
    attributes = {
        (path, attribute_name)
        for path, attribute_name in assigned
        if is_plain(model.get_submodule(path), attribute_name)
    }
    values_before: dict[Attribute, Any] = {}
    try:
        while True:
            for attribute in attributes - values_before.keys():
                values = vars(model.get_submodule(attribute[0]))
                values_before[attribute] = [values[attribute[1]]] if attribute[1] in values else []
            for attribute in attributes:
                remove_attribute(model, attribute)
            try:
                return run(attributes)
            except NewAttribute as signal:
                attributes.add(signal.attribute)
    finally:
        for attribute, values in values_before.items():
            remove_attribute(model, attribute)
            for value in values:
                vars(model.get_submodule(attribute[0]))[attribute[1]] = value


def remove_attribute(model: torch.nn.Module, attribute: Attribute) -> None:
    """Remove the attribute from its module, if it is there."""
    vars(model.get_submodule(attribute[0])).pop(attribute[1], None)
