"""Detect replaced functions of PyTorch, Python and the verifier, since comparisons with them prove
nothing."""

from __future__ import annotations

import builtins
import json
import math
import random
import sys
import time
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any

import torch
from torch import nn

_OWNERS: tuple[tuple[str, Any], ...] = (
    ("torch", torch),
    ("torch.Tensor", torch.Tensor),
    ("torch.nn.functional", nn.functional),
    ("torch.nn.Module", nn.Module),
    ("torch.autograd", torch.autograd),
    ("torch.testing", torch.testing),
    ("torch.linalg", torch.linalg),
    ("builtins", builtins),
    ("time", time),
    ("math", math),
    ("random", random),
    ("json", json),
    ("multiprocessing.connection.Connection", Connection),
)


def _verifier_parts() -> tuple[tuple[str, Any], ...]:
    """Return the loaded modules of the verifier and of what it runs models with, and the classes
    that they define, with their names."""
    modules = [
        (name, module)
        for name, module in sys.modules.items()
        if name.startswith(("regraft.verification", "regraft.execution"))
        and isinstance(module, ModuleType)
    ]
    classes = [
        (f"{name}.{value.__qualname__}", value)
        for name, module in modules
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == name
    ]
    return (*modules, *classes)


class FunctionsSnapshot:
    """A snapshot, at construction, of the callables of PyTorch, of Python's own modules and of the
    modules of the verifier that are loaded."""

    def __init__(self) -> None:
        """Store the present callables of all owners by their names."""
        self._owners = (*_OWNERS, *_verifier_parts())
        self._snapshot = {
            (place, name): value
            for place, owner in self._owners
            for name, value in _callables(owner)
        }

    def replaced_names(self, by: str = "") -> frozenset[str]:
        """Return the qualified names of callables that are replaced or gone since the snapshot; new
        callables do not count.

        With `by` only those replaced by a function of that module count, because PyTorch replaces
        functions of its own while it captures a graph.
        """
        present = {
            (place, name): value
            for place, owner in self._owners
            for name, value in _callables(owner)
        }
        return frozenset(
            f"{place}.{name}"
            for (place, name), value in self._snapshot.items()
            if (replacement := present.get((place, name))) is not value
            and by in ("", _module_of(replacement))
        )


def _module_of(function: Any) -> str:
    """Return the name of the module whose variables a function reads, or that a callable names as
    its own; "" for neither."""
    return str(
        getattr(function, "__globals__", {}).get("__name__", getattr(function, "__module__", ""))
    )


def _callables(owner: Any) -> list[tuple[str, Any]]:
    """Return pairs of a name and a callable: those of a module, or of a class with those that it
    inherits."""
    parts = reversed(getattr(owner, "__mro__", (owner,)))
    values = {name: value for part in parts for name, value in vars(part).items()}
    return [(name, value) for name, value in values.items() if callable(value)]
