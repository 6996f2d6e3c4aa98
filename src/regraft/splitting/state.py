"""Python state of a network's modules, to see whether a call changes it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy
import torch

from regraft.splitting.scratch import Attribute

DEEP = 6  # levels of objects within objects that are looked at


class State:
    """What the attributes of all modules hold, and plain attributes of their classes; objects stay referenced."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.kept: list[Any] = []
        self.found: dict[tuple[str, str], Any] = {}
        for path, module in model.named_modules():
            for key, value in vars(module).items():
                self.found[path, key] = self.frozen(value, 0)
            for kind in type(module).__mro__:
                if not (kind is object or kind.__module__.startswith("torch.")):
                    for key, value in vars(kind).items():
                        if not (key.startswith("__") or callable(value)):
                            self.found[path, f"{kind.__name__}.{key}"] = self.frozen(value, 0)

    def changed(self, model: torch.nn.Module, scratch: Collection[Attribute]) -> Attribute | None:
        """The first module and attribute that now differ, but for those that calls assign."""
        now = State(model)
        keys = {key: None for key in (*self.found, *now.found) if key not in scratch}
        return next((key for key in keys if self.found.get(key, self) != now.found.get(key, now)), None)

    def frozen(self, value: Any, depth: int) -> Any:
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            return type(value), repr(value)
        self.kept.append(value)
        if isinstance(value, torch.Tensor):
            return id(value), value._version
        if isinstance(value, numpy.ndarray):
            return id(value), value.tobytes() if value.dtype != object else repr(value)
        if isinstance(value, (torch.nn.Module, type)) or depth > DEEP:
            return id(value)
        if isinstance(value, dict):
            items = [(self.frozen(key, depth + 1), self.frozen(one, depth + 1)) for key, one in value.items()]
            return id(value), items, self.frozen(vars(value), depth + 1) if hasattr(value, "__dict__") else None
        if isinstance(value, (list, tuple)):
            return id(value), [self.frozen(one, depth + 1) for one in value]
        if isinstance(value, (set, frozenset)):
            return id(value), sorted(repr(self.frozen(one, depth + 1)) for one in value)
        if callable(value):
            return id(value)
        slots = [key for kind in type(value).__mro__ for key in getattr(kind, "__slots__", ())]
        held = {**getattr(value, "__dict__", {}), **{key: getattr(value, key, None) for key in slots}}
        return id(value), [(key, self.frozen(one, depth + 1)) for key, one in held.items()], repr_of(value)


def repr_of(value: Any) -> str:
    """What an object without attributes shows of itself, such as a deque, an iterator or a counter of itertools."""
    try:
        return repr(value)
    except Exception:  # noqa: BLE001  (a repr of the network's own)
        return ""
