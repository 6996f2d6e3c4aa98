"""Flags that modules keep as attributes and that no argument may set, as `self.fused_attn`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any


def flags(model: Any, module: ModuleType, text: str) -> Iterator[tuple[str, bool]]:
    """Yield the truths that the model's parts of this file hold and a text reads from `self`, with their opposites."""
    found = {
        name: value
        for part in _own(model, module)
        for name, value in vars(part).items()
        if type(value) is bool and name != "training" and re.search(rf"\bself\.{name}\b", text)
    }
    yield from ((name, not value) for name, value in found.items())


def flagged(build: Callable[[ModuleType], Any], chosen: Mapping[str, bool]) -> Callable[[ModuleType], Any]:
    """Build the same model with other flags."""
    if not chosen:
        return build

    def other(module: ModuleType) -> Any:
        model = build(module)
        for part in _own(model, module):
            vars(part).update({name: value for name, value in chosen.items() if type(vars(part).get(name)) is bool})
        return model

    return other


def _own(model: Any, module: ModuleType) -> Iterator[Any]:
    return (part for part in model.modules() if type(part).__module__ == module.__name__)
