"""Watch the original model run and keep what went into every changed class and function."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

from regraft.verify.child import tree
from regraft.verify.child.tree import Call

INSTANCES = 2
CALLS = 3


@dataclass(frozen=True, slots=True)
class Recorded:
    """One call of a changed definition: of the module at `path`, or of the function where `path` is None."""

    definition: str
    path: str | None
    call: Call


@dataclass(slots=True)
class Recorder:
    """Keeps the first calls of the watched definitions: few instances, few calls, each with other shapes.

    `ran` names those of the classes in `noted` of which an instance was called.
    """

    module: ModuleType
    watched: tuple[str, ...]
    model: Any
    noted: frozenset[str] = frozenset()
    found: list[Recorded] = field(default_factory=list)
    ran: set[str] = field(default_factory=set)

    def keep(self, definition: str, path: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        mine = [entry for entry in self.found if entry.definition == definition]
        paths = {entry.path for entry in mine}
        here = [entry for entry in mine if entry.path == path]
        if (path not in paths and len(paths) >= INSTANCES) or len(here) >= CALLS:
            return
        call = tree.snapshot(args, kwargs, self.model)
        if not any(_alike(entry.call, call) for entry in here):
            self.found.append(Recorded(definition, path, call))


def _alike(a: Call, b: Call) -> bool:
    return tree.shapes(a) == tree.shapes(b) and len(a.args) == len(b.args) and list(a.kwargs) == list(b.kwargs)


@contextmanager
def recording(
    module: ModuleType, watched: tuple[str, ...], model: Any, noted: frozenset[str] = frozenset()
) -> Iterator[Recorder]:
    """Record calls while the original `model` of the original `module` runs."""
    recorder = Recorder(module, watched, model, noted)
    handles = []
    classes = {name: getattr(module, name, None) for name in watched}
    for name, value in classes.items():
        if isinstance(value, type) and issubclass(value, nn.Module):
            handles += [_hook(recorder, name, path, m) for path, m in model.named_modules() if isinstance(m, value)]
    handles += [_note(recorder, part) for part in model.modules() if type(part).__name__ in noted]
    functions = {name: value for name, value in classes.items() if isinstance(value, FunctionType)}
    try:
        for name, function in functions.items():
            setattr(module, name, _wrapped(recorder, name, function))
        yield recorder
    finally:
        for name, function in functions.items():
            setattr(module, name, function)
        for handle in handles:
            handle.remove()


def _hook(recorder: Recorder, name: str, path: str, module: Any) -> Any:
    def before(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        recorder.keep(name, path, args, kwargs)

    return module.register_forward_pre_hook(before, with_kwargs=True)


def _note(recorder: Recorder, module: Any) -> Any:
    def before(*_: Any) -> None:
        if type(module).__module__ == recorder.module.__name__:
            recorder.ran.add(type(module).__qualname__)

    return module.register_forward_pre_hook(before)


def _wrapped(recorder: Recorder, name: str, function: FunctionType) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if any(isinstance(leaf, torch.Tensor) for leaf in (*args, *kwargs.values())):
            recorder.keep(name, None, args, kwargs)
        return function(*args, **kwargs)

    return call
