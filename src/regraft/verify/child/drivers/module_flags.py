"""Boolean flags that modules store as attributes and that no argument sets, such as
`self.fused_attn`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any


def inverted_flags(model: Any, module: ModuleType, text: str) -> Iterator[tuple[str, bool]]:
    """Yield pairs of a flag's name and the opposite of its value.

    Flags are boolean attributes, except `training`, of the model's modules of this file that `text`
    reads from `self`.
    """
    flag_values = {
        name: value
        for part in _modules_of_file(model, module)
        for name, value in vars(part).items()
        if type(value) is bool and name != "training" and re.search(rf"\bself\.{name}\b", text)
    }
    yield from ((name, not value) for name, value in flag_values.items())


def with_flags(
    build: Callable[[ModuleType], Any], chosen: Mapping[str, bool]
) -> Callable[[ModuleType], Any]:
    """Return a function that builds the same model and sets the `chosen` flags in those of its
    modules of the file that have them."""
    if not chosen:
        return build

    def build_with_flags(module: ModuleType) -> Any:
        model = build(module)
        for part in _modules_of_file(model, module):
            vars(part).update(
                {
                    name: value
                    for name, value in chosen.items()
                    if type(vars(part).get(name)) is bool
                }
            )
        return model

    return build_with_flags


def _modules_of_file(model: Any, module: ModuleType) -> Iterator[Any]:
    """Return those of the model's modules, itself included, whose class the file defines."""
    return (part for part in model.modules() if type(part).__module__ == module.__name__)
