"""Record the arguments of every changed class and function while the original model runs."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
    """One call of a changed definition: of the module at `path`, or of a function where `path` is
    None."""

    definition: str
    path: str | None
    call: Call


@dataclass(slots=True)
class Recorder:
    """Collects the first calls of the watched definitions: at most INSTANCES instances of each, and
    CALLS calls of different shapes of each instance.

    `ran` names those of the classes in `noted` of which an instance was called.
    """

    module: ModuleType
    watched: tuple[str, ...]
    model: Any
    noted: frozenset[str] = frozenset()
    calls: list[Recorded] = field(default_factory=list)
    ran: set[str] = field(default_factory=set)

    def keep(
        self, definition: str, path: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Append a snapshot of a call to `calls`, unless there are enough of its definition or of
        its path, or the path has a call with equal shapes."""
        recorded_calls = [entry for entry in self.calls if entry.definition == definition]
        paths = {entry.path for entry in recorded_calls}
        calls_of_path = [entry for entry in recorded_calls if entry.path == path]
        if (path not in paths and len(paths) >= INSTANCES) or len(calls_of_path) >= CALLS:
            return
        call = tree.snapshot(args, kwargs, self.model)
        if not any(_has_equal_shapes(entry.call, call) for entry in calls_of_path):
            self.calls.append(Recorded(definition, path, call))


def _has_equal_shapes(a: Call, b: Call) -> bool:
    """Return whether two calls have tensors of equal shapes, the same number of positional
    arguments and the same names of keyword arguments in the same order."""
    return (
        tree.shapes(a) == tree.shapes(b)
        and len(a.args) == len(b.args)
        and list(a.kwargs) == list(b.kwargs)
    )


@contextmanager
def recording(
    module: ModuleType, watched: tuple[str, ...], model: Any, noted: frozenset[str] = frozenset()
) -> Iterator[Recorder]:
    """Yield a recorder of the calls of `watched` definitions while the original `model` of the
    original `module` runs in the body; hooks and replaced functions are removed at its end.

    Functions are recorded where they are looked up in `module`, modules of subclasses as well. A
    call is recorded before it runs. Names in `watched` that are no function or module class are
    ignored.
    """
    recorder = Recorder(module, watched, model, noted)
    definitions = {name: getattr(module, name, None) for name in watched}
    with ExitStack() as stack:
        for name, value in definitions.items():
            if isinstance(value, FunctionType):
                stack.callback(setattr, module, name, value)
                setattr(module, name, _recording_function(recorder, name, value))
            elif isinstance(value, type) and issubclass(value, nn.Module):
                for path, submodule in model.named_modules():
                    if isinstance(submodule, value):
                        stack.enter_context(_record_calls_of(recorder, name, path, submodule))
        for submodule in model.modules():
            if type(submodule).__name__ in noted:
                stack.enter_context(_note_class(recorder, submodule))
        yield recorder


def _record_calls_of(recorder: Recorder, name: str, path: str, module: Any) -> Any:
    """Hook a module so that its calls are recorded under `name` and `path`; return the handle of
    the hook."""

    def hook(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record the arguments of a call, before it runs, and leave them as they are."""
        recorder.keep(name, path, args, kwargs)

    return module.register_forward_pre_hook(hook, with_kwargs=True)


def _note_class(recorder: Recorder, module: Any) -> Any:
    """Hook a module so that a call adds the qualified name of its class to `recorder.ran`, if the
    class is defined in the recorder's module; return the handle of the hook."""

    def hook(*_: Any) -> None:
        """Add the module's class to `ran`, before a call runs."""
        if type(module).__module__ == recorder.module.__name__:
            recorder.ran.add(type(module).__qualname__)

    return module.register_forward_pre_hook(hook)


def _recording_function(recorder: Recorder, name: str, function: FunctionType) -> Any:
    """Return a function that calls `function` and records its calls with at least one tensor
    directly among the arguments."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        """Record a call with tensors, then return the result of the function."""
        if any(isinstance(leaf, torch.Tensor) for leaf in (*args, *kwargs.values())):
            recorder.keep(name, None, args, kwargs)
        return function(*args, **kwargs)

    return call
