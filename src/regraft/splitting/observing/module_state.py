"""The Python state of a network's modules, by which changes of a call show."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy
import torch

from regraft.splitting.observing.assigned_attributes import Attribute

MAX_DEPTH = 6  # levels of objects within objects that are looked at


class State:
    """A snapshot of the attributes of all modules of a network, and of the plain attributes of
    their classes.

    The objects in it stay referenced, so that their ids stay their own.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        """Freeze the attributes of all modules, and those of their classes that are no methods."""
        self.referenced: list[Any] = []
        self.snapshots: dict[tuple[str, str], Any] = {}
        for path, module in model.named_modules():
            for key, value in vars(module).items():
                self.snapshots[path, key] = self.freeze(value, 0)
            for kind in type(module).__mro__:
                if not (kind is object or kind.__module__.startswith("torch.")):
                    for key, value in vars(kind).items():
                        if not (key.startswith("__") or callable(value)):
                            self.snapshots[path, f"{kind.__name__}.{key}"] = self.freeze(value, 0)

    def first_change(
        self, model: torch.nn.Module, scratch: Collection[Attribute]
    ) -> Attribute | None:
        """Return the first attribute (path of its module, name) that is another now than in the
        snapshot, is new or is gone, except those in `scratch`; None where there is none."""
        return next((key for key in self.list_changes(model) if key not in scratch), None)

    def list_changes(self, model: torch.nn.Module) -> list[Attribute]:
        """Return the attributes (path of their module, name) that are others now than in the
        snapshot, are new or are gone."""
        current = State(model)
        keys = dict.fromkeys((*self.snapshots, *current.snapshots))
        return [
            key
            for key in keys
            if self.snapshots.get(key, self) != current.snapshots.get(key, current)
        ]

    def freeze(self, value: Any, depth: int) -> Any:
        """Return a value that compares equal as long as the object, and what it holds, stays the
        same: of a plain value type and text, of a tensor identity and version. A module, a class,
        and an object within more than `MAX_DEPTH` others, count by their identity alone.

        depth: the number of objects around it.
        """
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            return type(value), repr(value)
        self.referenced.append(value)
        if isinstance(value, torch.Tensor):
            return id(value), version_of(value)
        if isinstance(value, numpy.ndarray):
            return id(value), value.tobytes() if value.dtype != object else repr(value)
        if isinstance(value, (torch.nn.Module, type)) or depth > MAX_DEPTH:
            return id(value)
        return self.freeze_contents(value, depth + 1)

    def freeze_contents(self, value: Any, depth: int) -> Any:
        """Return a value for an object that may hold others which compares equal as long as it and
        what it holds stay the same; a function or other callable counts by its identity alone.

        depth: the number of objects around those that it holds.
        """
        if isinstance(value, dict):
            items = self.freeze_items(value, depth)
            attributes = self.freeze(vars(value), depth) if hasattr(value, "__dict__") else None
            return id(value), items, attributes
        if isinstance(value, (list, tuple)):
            return id(value), [self.freeze(element, depth) for element in value]
        if isinstance(value, (set, frozenset)):
            return id(value), sorted(repr(self.freeze(element, depth)) for element in value)
        if callable(value):
            return id(value)
        attributes = [
            (key, self.freeze(attribute, depth)) for key, attribute in attributes_of(value).items()
        ]
        return id(value), attributes, repr_of(value)

    def freeze_items(self, value: dict[Any, Any], depth: int) -> list[tuple[Any, Any]]:
        """Return the frozen keys and values of a dictionary."""
        return [
            (self.freeze(key, depth), self.freeze(element, depth)) for key, element in value.items()
        ]


def version_of(tensor: torch.Tensor) -> Any:
    """Return what is another one after each change of a tensor in place: its version, or the
    content of a tensor of inference mode, which has no version."""
    return tensor.cpu().numpy().tobytes() if tensor.is_inference() else tensor._version


def attributes_of(value: Any) -> dict[str, Any]:
    """Return the attributes of an object by name, those in slots among them; the value of an empty
    slot is None."""
    slots = [key for kind in type(value).__mro__ for key in getattr(kind, "__slots__", ())]
    return {
        **getattr(value, "__dict__", {}),
        **{key: getattr(value, key, None) for key in slots},
    }


def repr_of(value: Any) -> str:
    """Return the repr of an object, which shows the content of a deque, an iterator or a counter of
    itertools.

    Returns "" where the repr raises.
    """
    try:
        return repr(value)
    except Exception:  # noqa: BLE001  (a repr of the network's own)
        return ""
